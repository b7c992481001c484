// Package storetest tests implementations of executor.Store and executor.Blobs against their contract. Each rule in the
// sections "Rules of stores" and "Rules of blobs" of docs/contract.md has a case here. The name of the case begins with the
// rule's id.
//
// The test of an implementation calls Run or RunBlobs with a function that opens an empty Store or Blobs. A Store that
// outlives its process also calls RunDurable and RunLarge.
package storetest
