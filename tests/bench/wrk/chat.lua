-- wrk -t1 -c8 -d30s --timeout 60s -s tests/bench/wrk/chat.lua http://127.0.0.1:8080
-- Whole (not streamed) chat answers of at most MAX_TOKENS tokens (environment, default 32).
local here = debug.getinfo(1, "S").source:match("^@?(.*/)") or "./"
local common = dofile(here .. "common.lua")
local limit = os.getenv("MAX_TOKENS") or "32"
common.install("/v1/chat/completions",
   '{"messages":[{"role":"user","content":"Tell me about the sea."}],"max_tokens":' .. limit .. '}')
