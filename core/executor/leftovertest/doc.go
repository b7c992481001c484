// Package leftovertest removes what test processes that were killed have left behind: the folders, processes and mounts of a server
// that a test has started.
//
// Such a server has a folder of its own below os.TempDir. Lock keeps the folder from Sweep while its process lives.
package leftovertest
