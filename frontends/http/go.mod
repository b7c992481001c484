module github.com/python-executor/python-executor/frontends/http

go 1.26.8

require github.com/python-executor/python-executor/core v0.0.0

require (
	github.com/danielgtaylor/huma/v2 v2.37.2 // indirect
	github.com/pelletier/go-toml/v2 v2.2.4 // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
)

replace github.com/python-executor/python-executor/core => ../../core
