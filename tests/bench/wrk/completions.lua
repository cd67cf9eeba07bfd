-- wrk -t1 -c8 -d30s --timeout 60s -s tests/bench/wrk/completions.lua http://127.0.0.1:8080
-- Whole (not streamed) completions of MAX_TOKENS tokens (environment, default 32).
local here = debug.getinfo(1, "S").source:match("^@?(.*/)") or "./"
local common = dofile(here .. "common.lua")
local limit = os.getenv("MAX_TOKENS") or "32"
common.install("/v1/completions",
   '{"prompt":"Once upon a time, in a village by the sea, there lived","max_tokens":' .. limit .. ',"ignore_eos":true}')
