module github.com/python-executor/python-executor/frontends/http

go 1.26.8

require github.com/python-executor/python-executor/core v0.0.0

replace github.com/python-executor/python-executor/core => ../../core
