module github.com/python-executor/python-executor/core

go 1.26.8
