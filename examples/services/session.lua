-- For wrk and wrk2: asks for one of 20,000 sessions (docs/services).
request = function() return wrk.format("GET", "/session/" .. math.random(20000)) end
