// Package dirblobs keeps blobs as files below one folder.
//
// The blob with the key "work/exe_1" is the file work/exe_1% . Because of the suffix, both "work" and "work/exe_1" can be
// keys. No key contains the suffix. Unfinished files are in the folder %tmp, which no key names, and are renamed when they are
// complete. Folders are 0700, files 0600.
//
// One flow: Put writes and hashes a temporary file, syncs it if durable, renames it, and syncs its folders if durable.
// Blobs.Open returns a Source with the file's Path. A crash leaves only temporary files, which the next Open removes.
package dirblobs
