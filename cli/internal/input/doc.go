// Package input turns what the user named, a tar, a folder, files or a pipe, into the tar of a Workspace.
//
// It talks to no server and starts nothing. The five methods, in their order of precedence:
//
//  1. --file PATH, repeated: each file under the relative path as it was given; an absolute path, or one that leads out
//     of the current folder, under its base name. Two files under one name are refused.
//  2. a .tar argument: sent as it is.
//  3. a folder argument: its files, a folder's own files before its subfolders, without what .gitignore names, version
//     control and virtual environments. A symbolic link that leads out of the folder is refused by name.
//  4. a single file: under its base name; it is the entrypoint.
//  5. a pipe: main.py; only when nothing else is named, and not read otherwise.
//
// Two of them at once are an error. A compressed archive is refused.
//
// The rules for folders, names and ignore files are those of sdk/go/pack, which writes the tar while it is read.
//
// One flow: Open chooses the method, lists the tar, and reads in it the entrypoint and the requirements; the caller sends
// Workspace.
package input
