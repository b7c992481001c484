module github.com/python-executor/python-executor/plugins/backend-uv

go 1.26.8

require github.com/python-executor/python-executor/core v0.0.0

require (
	github.com/prometheus/client_golang v1.25.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/python-executor/python-executor/core => ../../core
