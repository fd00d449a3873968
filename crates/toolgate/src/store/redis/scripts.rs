//! The layout of the keys, and the scripts that change several keys at once.
//!
//! All keys of a space have its name in braces, so that a Cluster keeps them on one node, where a script can access all
//! of them. With the prefix `toolgate:`, the keys of a space `s` and a name `n` are:
//!
//! - `toolgate:{s}e:n`: an entry, as version, colon and value, with its TTL
//! - `toolgate:{s}i`: the names of the entries, a sorted set. Names of expired entries are removed by LIST, and at
//!   random by PUT. The set expires after the longest TTL of its entries.
//! - `toolgate:{s}v`: the last version. A version is the time in microseconds, or the last version plus one, so that no
//!   version is reused even if this key is lost.
//! - `toolgate:{s}c:n`: a counter
//! - `toolgate:{s}l:n`: a log, a stream whose entries are numbered from 1
//! - `toolgate:p:c`: the channel `c`

use std::sync::OnceLock;

use crate::store::Key;

/// A Lua script, and the hash by which Redis knows it once it has run.
pub(super) struct LuaScript {
    text: &'static str,
    hash: OnceLock<String>,
}

impl LuaScript {
    const fn new(text: &'static str) -> LuaScript {
        LuaScript { text, hash: OnceLock::new() }
    }

    pub(super) fn text(&self) -> &'static str {
        self.text
    }

    pub(super) fn hash(&self) -> &str {
        self.hash.get_or_init(|| redis::Script::new(self.text).get_hash().to_owned())
    }
}

/// Builds the names of keys.
#[derive(Clone, Debug)]
pub(super) struct RedisKeys {
    prefix: String,
}

impl RedisKeys {
    pub(super) fn new(prefix: &str) -> RedisKeys {
        RedisKeys { prefix: escape_braces(prefix) }
    }

    pub(super) fn entry(&self, key: &Key) -> String {
        self.format_key(key.space(), "e:", key.name())
    }

    /// Returns the common prefix of all entries of a space.
    pub(super) fn entry_prefix(&self, space: &str) -> String {
        self.format_key(space, "e:", "")
    }

    pub(super) fn index(&self, space: &str) -> String {
        self.format_key(space, "i", "")
    }

    pub(super) fn last_version(&self, space: &str) -> String {
        self.format_key(space, "v", "")
    }

    pub(super) fn counter(&self, key: &Key) -> String {
        self.format_key(key.space(), "c:", key.name())
    }

    pub(super) fn log(&self, key: &Key) -> String {
        self.format_key(key.space(), "l:", key.name())
    }

    pub(super) fn channel(&self, channel: &str) -> String {
        format!("{}p:{channel}", self.prefix)
    }

    fn format_key(&self, space: &str, kind: &str, name: &str) -> String {
        // Redis ignores empty braces.
        let space = if space.is_empty() { "%".to_owned() } else { escape_braces(space) };
        format!("{}{{{space}}}{kind}{name}", self.prefix)
    }
}

/// Escapes braces, which have a meaning in keys.
fn escape_braces(text: &str) -> String {
    text.replace('%', "%25").replace('{', "%7b").replace('}', "%7d")
}

/// `KEYS`: entry, index, last version. `ARGV`: name, value, TTL or empty, expected version, common prefix of entries.
pub(super) static PUT: LuaScript = LuaScript::new(
    r"
local current = string.match(redis.call('GETRANGE', KEYS[1], 0, 19), '^(%d+):')
if ARGV[4] == '-' then
  if current then return false end
elseif ARGV[4] ~= '*' and ARGV[4] ~= current then
  return false
end
local time = redis.call('TIME')
local version = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('GET', KEYS[3]) or '0')
if version <= last then version = last + 1 end
version = string.format('%.0f', version)
redis.call('SET', KEYS[3], version, 'EX', 172800)
local stored = version .. ':' .. ARGV[2]
redis.call('ZADD', KEYS[2], 0, ARGV[1])
if ARGV[3] == '' then
  redis.call('SET', KEYS[1], stored)
  redis.call('PERSIST', KEYS[2])
else
  redis.call('SET', KEYS[1], stored, 'PX', ARGV[3])
  if redis.call('ZCARD', KEYS[2]) == 1 then
    redis.call('PEXPIRE', KEYS[2], ARGV[3] + 1000)
  else
    redis.call('PEXPIRE', KEYS[2], ARGV[3] + 1000, 'GT')
  end
end
for _, name in ipairs(redis.call('ZRANDMEMBER', KEYS[2], 3)) do
  if redis.call('EXISTS', ARGV[5] .. name) == 0 then redis.call('ZREM', KEYS[2], name) end
end
return version
",
);

/// `KEYS`: entry, index. `ARGV`: TTL.
pub(super) static TOUCH: LuaScript = LuaScript::new(
    r"
local exists = redis.call('PEXPIRE', KEYS[1], ARGV[1])
if exists == 1 then redis.call('PEXPIRE', KEYS[2], ARGV[1] + 1000, 'GT') end
return exists
",
);

/// `KEYS`: entry, index, log. `ARGV`: name, expected version.
pub(super) static DELETE: LuaScript = LuaScript::new(
    r"
local deleted = 0
if ARGV[2] == '*' then deleted = redis.call('UNLINK', KEYS[3]) end
local current = string.match(redis.call('GETRANGE', KEYS[1], 0, 19), '^(%d+):')
if current and (ARGV[2] == '*' or ARGV[2] == current) then
  redis.call('UNLINK', KEYS[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
  deleted = 1
end
return deleted
",
);

/// `KEYS`: index. `ARGV`: common prefix of entries, start of the range, limit.
pub(super) static LIST: LuaScript = LuaScript::new(
    r"
local found, count, from, limit = {}, 0, ARGV[2], tonumber(ARGV[3])
while count < limit do
  local names = redis.call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, math.min(limit - count, 256))
  if #names == 0 then break end
  for _, name in ipairs(names) do
    local stored = redis.call('GET', ARGV[1] .. name)
    if stored then
      count = count + 1
      found[#found + 1] = name
      found[#found + 1] = stored
    else
      redis.call('ZREM', KEYS[1], name)
    end
  end
  from = '(' .. names[#names]
end
return found
",
);

/// `KEYS`: counter. `ARGV`: increment, TTL.
pub(super) static COUNT: LuaScript = LuaScript::new(
    r"
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
if redis.call('PTTL', KEYS[1]) == -1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return count
",
);

/// `KEYS`: log. `ARGV`: value, TTL, limit.
pub(super) static APPEND: LuaScript = LuaScript::new(
    r"
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local number = 1
if last then number = tonumber(string.match(last[1], '^%d+')) + 1 end
redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[3], string.format('%.0f-0', number), 'v', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return number
",
);

/// `KEYS`: log. `ARGV`: number to start after, limit.
pub(super) static READ: LuaScript = LuaScript::new(
    r"
local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if not first then return false end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local entries = {}
if ARGV[2] ~= '0' then
  entries = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1] .. '-0', '+', 'COUNT', ARGV[2])
end
return {first[1], last[1], entries}
",
);

/// `KEYS`: channel. `ARGV`: message.
pub(super) static PUBLISH: LuaScript = LuaScript::new("return redis.call('PUBLISH', KEYS[1], ARGV[1])");
