-- Stores a tracker's note under a new version.
-- KEYS: the note, all notes, the newest version. ARGV: tracker, note, life in seconds.
local version = redis.call('INCR', KEYS[3])
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
redis.call('ZADD', KEYS[2], version, ARGV[1])
for k = 2, 3 do redis.call('EXPIRE', KEYS[k], ARGV[3]) end
return version
