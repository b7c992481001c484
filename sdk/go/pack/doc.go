// Package pack makes the tar of a program that lies in local files. The CLI and programs that use the SDK send the same files, under
// the same names:
//
//	e, err := client.Run(ctx, pyexec.Spec{}, pyexec.Input{Folder: "project"})
//
// Extract is the way back: it writes a tar of artifacts to a folder.
//
// Folder sends a folder's own files before its subfolders, sorted by name. It leaves out what .gitignore files name, version control
// and virtual environments. A symbolic link that leads out of the folder is an error. Files sends each file under its relative path; an
// absolute path, or one that leads out of the current folder, becomes the base name.
//
// The tar is written while it is read: an Archive holds names and sizes, never the content of files. The same files make the same
// bytes.
//
// Entrypoint is the rule of the server for the file that runs. The requirements are found by the server (Spec.Detect), so that there is
// one rule for them. testdata/input has the examples that this package, the server and the Python SDK are tested with.
package pack
