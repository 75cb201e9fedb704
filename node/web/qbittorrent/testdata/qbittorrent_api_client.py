"""Uses the calls of qbittorrentapi.Client that automation makes, and checks what each of them did."""
import os
import sys
import time

import qbittorrentapi
from qbittorrentapi import Client, Conflict409Error, Forbidden403Error, LoginFailed, NotFound404Error

url, first, second, other, peer = sys.argv[1:6]


def until(what, condition):
    end = time.time() + 60
    while not condition():
        if time.time() > end:
            raise AssertionError("never: " + what)
        time.sleep(0.05)


def refused(error, call, *args, **named):
    try:
        call(*args, **named)
    except error:
        return
    raise AssertionError("not refused")


refused(LoginFailed, Client(host=url, username="admin", password="wrong").auth_log_in)
c = Client(host=url, username="admin", password="secret")
c.auth_log_in()
assert c.is_logged_in
assert c.app_version() == "v5.1.4" and c.app_web_api_version() == "2.11.4"
assert "libtorrent" in c.app_build_info()
c.app_set_preferences({"dl_limit": 900000, "max_ratio": 3, "max_ratio_enabled": True})
p = c.app_preferences()
assert p.dl_limit == 900000 and p.max_ratio == 3 and p.save_path == c.app_default_save_path()
refused(Conflict409Error, c.app_set_preferences, {"dht": True})
assert isinstance(c.log_main(), list) or c.log_main() is not None
assert len(c.log_peers()) == 0

c.torrents_create_category("tv", save_path=other)
assert c.torrents_categories()["tv"].savePath == other
assert c.torrents_add(torrent_files=first, is_stopped=True, category="tv", tags=["a", "b"], upload_limit=70000, ratio_limit=2) == "Ok."
assert c.torrents_add(torrent_files=open(second, "rb").read(), is_stopped=True) == "Ok."
assert c.torrents_add(urls="magnet:?xt=urn:btih:" + "ef" * 20, is_stopped=True) == "Ok."
assert c.torrents_count() == 3
t = c.torrents_info(category="tv")[0]
h = t.hash
assert t.name == "album" and t.state == "stoppedDL" and t.tags == "a, b" and t.up_limit == 70000 and t.ratio_limit == 2, t
assert t.state_enum.is_stopped and len(c.torrents_info(status_filter="stopped", sort="name")) == 3
p = c.torrents_properties(h)
assert p.save_path == other and p.pieces_num == 13 and p.pieces_have == 0, p
files = c.torrents_files(h)
assert [f.name for f in files] == ["album/a.txt", "album/b/c.mkv"] and files[0].priority == 1
assert c.torrents_piece_states(h) == [0] * 13 and len(c.torrents_piece_hashes(h)[0]) == 40
assert c.torrents_webseeds(h) == [] and len(c.torrents_export(h)) > 300
refused(NotFound404Error, c.torrents_properties, "00" * 20)

c.torrents_file_priority(h, file_ids=[0], priority=0)
c.torrents_file_priority(h, file_ids=1, priority=7)
assert [f.priority for f in c.torrents_files(h)] == [0, 6]
c.torrents_file_priority(h, file_ids=[0, 1], priority=1)
c.torrents_add_trackers(h, urls=["http://127.0.0.1:1/announce", "udp://127.0.0.1:2"])
c.torrents_edit_tracker(h, original_url="udp://127.0.0.1:2", new_url="udp://127.0.0.1:3")
assert [x.url for x in c.torrents_trackers(h)][3:] == ["http://127.0.0.1:1/announce", "udp://127.0.0.1:3"]
c.torrents_remove_trackers(h, urls=["http://127.0.0.1:1/announce", "udp://127.0.0.1:3"])
assert len(c.torrents_trackers(h)) == 3

c.torrents_set_download_limit(limit=80000, torrent_hashes=h)
assert c.torrents_download_limit(h)[h] == 80000
c.torrents_set_download_limit(limit=0, torrent_hashes=h)
c.torrents_set_upload_limit(limit=-1, torrent_hashes=h)
assert c.torrents_upload_limit(h)[h] == 0
c.torrents_set_share_limits(ratio_limit=-2, seeding_time_limit=600, inactive_seeding_time_limit=-1, torrent_hashes=h)
t = c.torrents_info(torrent_hashes=h)[0]
assert t.ratio_limit == -2 and t.max_ratio == 3 and t.seeding_time_limit == 600 and t.inactive_seeding_time_limit == -1
c.torrents_bottom_priority(h)
assert c.torrents_info(torrent_hashes=h)[0].priority == 3
c.torrents_increase_priority(h)
assert c.torrents_info(torrent_hashes=h)[0].priority == 2
c.torrents_top_priority(h)
c.torrents_decrease_priority(h)
assert c.torrents_info(torrent_hashes=h)[0].priority == 2
c.torrents_toggle_sequential_download(h)
assert c.torrents_info(torrent_hashes=h)[0].seq_dl
c.torrents_set_auto_management(False, h)
refused(Conflict409Error, c.torrents_set_auto_management, True, h)

c.torrents_add_tags("c", h)
c.torrents_remove_tags("a", h)
assert c.torrents_info(tag="c")[0].tags == "b, c" and c.torrents_tags() == ["a", "b", "c"]
c.torrents_create_tags("d")
c.torrents_delete_tags("d")
c.torrents_set_category("", h)
c.torrents_edit_category("tv", save_path="/tv")
c.torrents_set_category("tv", h)
assert c.torrents_info(torrent_hashes=h)[0].category == "tv"

rid = c.sync_maindata().rid
assert c.torrents_add_peers(peers=peer, torrent_hashes=h)[h] == {"added": 0, "failed": 1}
c.torrents_start(h)
until("running", lambda: c.torrents_add_peers(peers=peer, torrent_hashes=h)[h]["added"] == 1)
until("seeding", lambda: c.torrents_info(torrent_hashes=h)[0].state in ("uploading", "stalledUP"))
d = c.sync_maindata(rid)
assert d.torrents[h].progress == 1 and "name" not in d.torrents[h] and "full_update" not in d, d
assert c.torrents_properties(h).pieces_have == 13 and set(c.torrents_piece_states(h)) == {2}
assert c.sync_torrent_peers(h).full_update
assert c.transfer_info().connection_status == "connected"
c.torrents_reannounce(h)
c.torrents_recheck(h)
until("seeding again", lambda: c.torrents_info(torrent_hashes=h)[0].state in ("uploading", "stalledUP"))
c.torrents_set_force_start(True, h)
until("forced", lambda: c.torrents_info(torrent_hashes=h)[0].state == "forcedUP")
c.torrents_set_force_start(False, h)
c.torrents_set_super_seeding(False, h)
c.torrents_stop(h)
until("stopped", lambda: c.torrents_info(torrent_hashes=h)[0].state == "stoppedUP")
place = os.path.join(other, "moved")
c.torrents_set_location(place, h)
until("moved", lambda: os.path.exists(os.path.join(place, "album/b/c.mkv")) and c.torrents_info(torrent_hashes=h)[0].save_path == place)
until("settled", lambda: c.torrents_info(torrent_hashes=h)[0].state != "moving")
c.torrents_rename_file(h, old_path="album/b/c.mkv", new_path="album/b/d.mkv")
refused(Conflict409Error, c.torrents_rename_file, h, old_path="album/b/c.mkv", new_path="album/b/e.mkv")
refused(Conflict409Error, c.torrents_rename_file, h, old_path="album/b", new_path="album/f")
refused(Conflict409Error, c.torrents_rename_folder, h, old_path="album/a.txt", new_path="album/z.txt")
refused(Conflict409Error, c.torrents_rename_folder, h, old_path="album/b", new_path="../b")
c.torrents_rename_folder(h, old_path="album/b", new_path="album/new/deep")
assert [f.name for f in c.torrents_files(h)][1] == "album/new/deep/d.mkv"
assert os.path.exists(os.path.join(place, "album/new/deep/d.mkv")) and not os.path.exists(os.path.join(place, "album/b"))
c.torrents_rename(h, "record")
x = c.torrents_info(torrent_hashes=h)[0]
assert x.name == "record" and x.content_path == os.path.join(place, "album"), x
refused(Conflict409Error, c.torrents_rename, h, " ")

c.transfer_set_speed_limits_mode(True)
assert c.transfer_speed_limits_mode() == "1"
c.transfer_set_upload_limit(60000)
assert c.transfer_upload_limit() == 60000
c.transfer_set_download_limit(0)
assert c.transfer_download_limit() == 0
c.torrents_remove_categories("tv")
c.torrents_delete(delete_files=True, torrent_hashes=h)
until("deleted", lambda: c.torrents_count() == 2 and not os.path.exists(os.path.join(place, "album/a.txt")))
assert h in c.sync_maindata(rid).get("torrents_removed", [h])
c.torrents_delete(torrent_hashes="all")
assert c.torrents_info() == []
c.auth_log_out()
assert not c.is_logged_in
c.auth_log_in()
c.app_shutdown()
