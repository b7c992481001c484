module github.com/python-executor/python-executor/examples/go

go 1.26.8

require github.com/python-executor/python-executor/sdk/go v0.0.0

replace github.com/python-executor/python-executor/sdk/go => ../../sdk/go
