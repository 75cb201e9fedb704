"""Calls every method of transmission_rpc.Client against the service at a port, and checks what it did."""
import os
import sys
import time

import transmission_rpc
from transmission_rpc import Client, TransmissionError

port, first, second, data, other = int(sys.argv[1]), *sys.argv[2:6]
called = set()


class Watched(Client):
    def __getattribute__(self, name):
        if not name.startswith("_"):
            called.add(name)
        return super().__getattribute__(name)


def until(what, condition):
    end = time.time() + 60
    while not condition():
        if time.time() > end:
            raise AssertionError("never: " + what)
        time.sleep(0.05)


def refused(part, call, *args, **named):
    try:
        call(*args, **named)
    except TransmissionError as e:
        assert part in str(e), str(e)
    else:
        raise AssertionError("not refused: " + part)


c = Watched(host="127.0.0.1", port=port, username="user", password="secret")
c.timeout = 30.0
assert c.timeout == 30.0
del c.timeout
session = c.get_session()
assert session.rpc_version == 18 and "braid" in session.version, session.version

with open(first, "rb") as f:
    added = c.add_torrent(f, paused=True, labels=["a"], bandwidth_priority=1, peer_limit=20, files_unwanted=[0], priority_high=[1])
assert added.name == "album"
t = c.get_torrent(added.id)
assert t.labels == ["a"] and t.status == "stopped" and t.peer_limit == 20 and t.is_private is False
files = t.get_files()
assert [f.name for f in files] == ["album/a.txt", "album/b/c.mkv", "album/d.txt"], files
assert [f.selected for f in files] == [False, True, True] and files[1].priority.name == "High"
assert c.get_torrent(t.hashString).id == t.id
for name in dir(type(t)):  # every property of a torrent can be read
    if not name.startswith("_") and isinstance(getattr(type(t), name), property):
        getattr(t, name)
try:
    c.get_torrent(99)
    raise AssertionError("torrent 99 is there")
except KeyError:
    pass
b = c.add_torrent("magnet:?xt=urn:btih:" + "cd" * 20, paused=True)
d = c.add_torrent(open(second, "rb").read(), paused=True)
assert len(c.get_torrents()) == 3 and len(c.get_torrents([t.id, d.id])) == 2
active, removed = c.get_recently_active_torrents()
assert len(active) == 3 and removed == []
c.remove_torrent(b.id)
assert b.id in c.get_recently_active_torrents()[1]

c.change_torrent(
    t.id, bandwidth_priority=-1, download_limit=100, download_limited=True, upload_limit=50, upload_limited=True, files_wanted=[0],
    honors_session_limits=False, peer_limit=30, priority_low=[0], seed_idle_limit=20, seed_idle_mode=1, seed_ratio_limit=1.5,
    seed_ratio_mode=1, labels=["x", "y"], tracker_list=[["http://127.0.0.1:1/announce"], ["udp://127.0.0.1:2"]], sequential_download=True,
)
t = c.get_torrent(t.id)
assert t.download_limit == 100 and t.upload_limited and not t.honors_session_limits and t.labels == ["x", "y"]
assert t.seed_ratio_limit == 1.5 and t.seed_idle_limit == 20 and [x.tier for x in t.trackers] == [0, 1]
assert t.tracker_list == ["http://127.0.0.1:1/announce", "udp://127.0.0.1:2"]
c.change_torrent(t.id, tracker_add=["udp://127.0.0.1:3"], tracker_replace=[(0, "http://127.0.0.1:4/announce")], tracker_remove=[1])
assert c.get_torrent(t.id).tracker_list == ["http://127.0.0.1:4/announce", "udp://127.0.0.1:3"], c.get_torrent(t.id).tracker_list
refused("bandwidth groups", c.change_torrent, t.id, group="fast")
c.change_torrent(t.id, tracker_list=[], files_wanted=[])

c.queue_top(d.id)
assert c.get_torrent(d.id).queue_position == 0
c.queue_down(d.id)
assert c.get_torrent(d.id).queue_position == 1
c.queue_up(d.id)
assert c.get_torrent(d.id).queue_position == 0
c.queue_bottom(d.id)
assert c.get_torrent(d.id).queue_position == 1

assert c.rename_torrent_path(d.id, "second/a.txt", "z.txt") == ("second/a.txt", "z.txt")
assert c.rename_torrent_path(d.id, "second/b", "bb") == ("second/b", "bb")
assert [f.name for f in c.get_torrent(d.id).get_files()] == ["second/z.txt", "second/bb/c.mkv", "second/d.txt"]
refused("exist", c.rename_torrent_path, d.id, "second/a.txt", "y.txt")
refused("exist", c.rename_torrent_path, d.id, "second/z.txt", "d.txt")
assert c.rename_torrent_path(d.id, "second", "third") == ("second", "third")
assert c.get_torrent(d.id).name == "third"

c.move_torrent_data(t.id, data, move=False)
until("the data to be found", lambda: c.get_torrent(t.id).download_dir == data)
c.start_torrent(t.id)
until("seeding", lambda: c.get_torrent(t.id).seeding and c.get_torrent(t.id).percent_done == 1.0)
c.reannounce_torrent(t.id)
c.verify_torrent(t.id)
until("seeding again", lambda: c.get_torrent(t.id).seeding and c.get_torrent(t.id).percent_done == 1.0)
c.move_torrent_data(t.id, other)
until("the data to be moved", lambda: os.path.exists(os.path.join(other, "album/b/c.mkv")) and c.get_torrent(t.id).download_dir == other)
c.stop_torrent(t.id)
until("stopped", lambda: c.get_torrent(t.id).stopped)
c.start_torrent_now(t.id)
until("started", lambda: not c.get_torrent(t.id).stopped)
c.start_all()
until("all started", lambda: not any(x.stopped for x in c.get_torrents()))

c.set_session(
    alt_speed_down=70, alt_speed_up=30, alt_speed_enabled=True, alt_speed_time_begin=60, alt_speed_time_end=120, alt_speed_time_day=65,
    download_dir=other, download_queue_enabled=True, download_queue_size=3, seed_queue_enabled=True, seed_queue_size=4, seed_ratio_limit=2.0,
    seed_ratio_limited=True, idle_seeding_limit=33, idle_seeding_limit_enabled=True, speed_limit_down=900, speed_limit_down_enabled=True,
    start_added_torrents=False, encryption="tolerated", dht_enabled=False, default_trackers=["udp://127.0.0.1:9"],
)
s = c.get_session()
assert s.alt_speed_down == 70 and s.alt_speed_enabled and s.alt_speed_time_day == 65 and s.download_dir == other
assert s.download_queue_size == 3 and s.seed_ratio_limit == 2.0 and s.idle_seeding_limit == 33 and s.speed_limit_down == 900
assert not s.start_added_torrents
for name in dir(type(s)):
    if not name.startswith("_") and isinstance(getattr(type(s), name), property):
        getattr(s, name)
refused("no switch for the DHT", c.set_session, dht_enabled=True)
refused("other order", c.set_session, encryption="required")
refused("no blocklist", c.blocklist_update)
refused("tests its port", c.port_test)
refused("bandwidth groups", c.set_group, "fast", speed_limit_down=1)
assert c.get_group("fast") is None and c.get_groups() == {}
assert c.free_space(other) > 0
stats = c.session_stats()
assert stats.torrent_count == 2 and stats.current_stats.session_count == 1 and stats.cumulative_stats.files_added >= 2
c.remove_torrent([t.id, d.id], delete_data=True)
until("the data to be deleted", lambda: not os.path.exists(os.path.join(other, "album")))
assert c.get_torrents() == []

public = {n for n in dir(Client) if not n.startswith("_")}
# Properties that the library calls internal.
public -= {"url", "torrent_get_arguments", "raw_session", "session_id", "server_version", "semver_version", "rpc_version"}
missing = public - called
assert not missing, missing
