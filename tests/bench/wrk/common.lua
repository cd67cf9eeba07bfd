-- Shared by the wrk scripts: counts the completion tokens of every answer and prints requests/s and tokens/s.
-- wrk runs one Lua state a thread; done() gathers them. Run from any folder.

local M = {}
local threads = {}

function M.install(path, body)
   wrk.method = "POST"
   wrk.path = path
   wrk.body = body
   wrk.headers["Content-Type"] = "application/json"

   tokens = 0
   refused = 0

   function setup(thread)
      table.insert(threads, thread)
   end

   function response(status, _, text)
      local count = text:match('"completion_tokens": ?(%d+)')
      if status == 200 and count then
         tokens = tokens + tonumber(count)
      else
         refused = refused + 1
      end
   end

   function done(summary, latency)
      local total, bad = 0, 0
      for _, thread in ipairs(threads) do
         total = total + thread:get("tokens")
         bad = bad + thread:get("refused")
      end
      local seconds = summary.duration / 1e6
      io.write(string.format("requests/s: %.2f\ntokens/s:   %.2f\n", summary.requests / seconds, total / seconds))
      io.write(string.format("latency ms: p50 %.1f  p99 %.1f\n", latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
      if bad > 0 then io.write(string.format("without tokens: %d answers\n", bad)) end
   end
end

return M
