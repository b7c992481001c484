// Package watch tells when the file behind a path may have changed: it was written, replaced by a rename (as editors do), or one of the
// links or folders on the way to it was (as Kubernetes does for a ConfigMap). The folders are watched, because a watch of a file ends
// with the file.
//
// One flow: New watches every name on the way to the file. After a change of one of them it waits until nothing changes any more, watches
// the names that are now on the way, and sends a value to Changes. The receiver reads the file after that, so it misses nothing.
package watch
