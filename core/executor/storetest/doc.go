// Package storetest is the law for executor.Store and executor.Blobs: every rule of the section "Stores" of
// docs/contract.md has a case here whose name begins with the rule's id.
//
// It is ordinary code beside the interfaces, not a test of one implementation: an implementation's own test calls Run
// (and RunDurable if it keeps things across processes) or RunBlobs with a function that opens a fresh one.
package storetest
