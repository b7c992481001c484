// Package dirblobs keeps blobs as files below one folder.
//
// The key "work/exe_1" is the file work/exe_1% : the suffix lets the keys "work" and "work/exe_1" stand side by side, and
// no key can contain it. What is being written lies in the folder %tmp, out of the keys' reach, and is renamed into place
// when it is whole. Folders are 0700, files 0600.
//
// One flow: Put writes a temporary file while it hashes, syncs it and its folders if durable, and renames; Open hands out
// a Source with the file's Path; a crash leaves at most temporary files, which the next Open of the folder removes.
package dirblobs
