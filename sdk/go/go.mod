module github.com/python-executor/python-executor/sdk/go

go 1.26.8
