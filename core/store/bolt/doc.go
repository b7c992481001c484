// Package boltstore keeps Executions and their logs in a bbolt file and a write-ahead log beside it.
package boltstore
