// Package archive unpacks a Workspace into a folder and collects Artifacts out of it. It follows no link that leads out.
//
// An Extractor reads a tar while it arrives. A Collector sends the files that match the patterns of Spec.Outputs, or that
// differ from a Snapshot. Empty removes what a program has left. All of them open folders one by one, relative to the folder
// above, because the program may change names at any time.
//
// # What a Workspace may hold
//
// Regular files, folders, symbolic links that stay inside, and hard links to regular files of the same archive; PAX, GNU and
// ustar, long names, sparse files by their full size. At most 100,000 entries, 200 folders deep, names of at most 4,096 bytes,
// together at most Limits.DiskBytes.
//
// Refused as invalid in the phase prepare, with the entry's name:
//   - absolute names and "..";
//   - names that are not UTF-8, because results and events are JSON and could not name them;
//   - entries whose path leads through a link;
//   - links that leave, also several together;
//   - devices, FIFOs and unknown types;
//   - a file in the place of a folder with files;
//   - archives that are cut off (an end mark is required), that are compressed, or that are no tar.
//
// Of duplicate names the last wins. Set-id bits are dropped, owners can always read and write, times are kept. What follows
// the end mark is read and ignored.
package archive
