# A session of libtorrent with its default settings. Arguments: role, directory, torrents.
import libtorrent as lt, sys, time
session = lt.session()
for name in sys.argv[3:]:
    params = {'ti': lt.torrent_info(name), 'save_path': sys.argv[2]}
    if sys.argv[1] == 'seed':
        params['flags'] = lt.torrent_flags.seed_mode
    session.add_torrent(params)
while True:
    time.sleep(60)
