module github.com/python-executor/python-executor/cli

go 1.26.8

require github.com/python-executor/python-executor/core v0.0.0

replace github.com/python-executor/python-executor/core => ../core

require (
	github.com/python-executor/python-executor/frontends/http v0.0.0
	github.com/python-executor/python-executor/plugins/backend-uv v0.0.0
	github.com/python-executor/python-executor/sdk/go v0.0.0
)

replace (
	github.com/python-executor/python-executor/frontends/http => ../frontends/http
	github.com/python-executor/python-executor/plugins/backend-uv => ../plugins/backend-uv
	github.com/python-executor/python-executor/sdk/go => ../sdk/go
)
