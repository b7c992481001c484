package uvbackend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/requirements"
)

// own gives an environment that a build slot has filled to the plugin's user. The build slot must have no process any more. Code
// of a package may have added other content, so own refuses all that is neither file, folder nor link, or that belongs to another
// user than dir.
func own(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: must be a folder", filepath.Base(dir))
	}
	maker := ownerOf(info)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if kind := info.Mode().Type(); kind != 0 && kind != fs.ModeDir && kind != fs.ModeSymlink || ownerOf(info) != maker {
			return fmt.Errorf("%s: must be a file, folder or link of uid %d", filepath.Base(path), maker)
		}
		return nil
	})
	if err != nil || maker == os.Geteuid() {
		return err
	}
	return chownAll(dir, os.Geteuid(), os.Getegid())
}

func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// metadataFolders lists the dist-info folders of an environment, by their path below root. The caller closes root.
func metadataFolders(dir string) (root *os.Root, folders []string, err error) {
	packages, err := sitePackages(dir)
	if err != nil {
		return nil, nil, err
	}
	// Code of a package may have left links. A Root reads and writes nothing outside of the environment.
	if root, err = os.OpenRoot(dir); err != nil {
		return nil, nil, err
	}
	within, err := filepath.Rel(dir, packages)
	if err != nil {
		return root, nil, err
	}
	list, err := root.Open(within)
	if err != nil {
		return root, nil, err
	}
	defer list.Close()
	names, err := list.Readdirnames(-1)
	for _, name := range names {
		if strings.HasSuffix(name, ".dist-info") {
			folders = append(folders, path.Join(within, name))
		}
	}
	slices.Sort(folders)
	return root, folders, err
}

// readIn reads at most the first maxBytes bytes of a regular file.
func readIn(root *os.Root, name string, maxBytes int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: must be a regular file", name)
	}
	return io.ReadAll(io.LimitReader(f, maxBytes))
}

// resolved lists the installed packages, "name==version", sorted. It reads the packages' own metadata.
func resolved(dir string) ([]string, error) {
	root, folders, err := metadataFolders(dir)
	if root != nil {
		defer root.Close() //nolint:errcheck // read only, or written by now
	}
	if err != nil {
		return nil, err
	}
	list := []string{}
	for _, folder := range folders {
		head, _ := readIn(root, path.Join(folder, "METADATA"), 16<<10) // without it the folder's name tells
		name, version := metadata(string(head))
		if name == "" || version == "" {
			name, version, _ = strings.Cut(strings.TrimSuffix(path.Base(folder), ".dist-info"), "-")
		}
		list = append(list, requirements.Name(name)+"=="+version)
	}
	slices.Sort(list)
	return list, nil
}

// metadata reads name and version from the head of a METADATA file.
func metadata(head string) (name, version string) {
	for _, line := range strings.Split(head, "\n") {
		key, value, ok := strings.Cut(strings.TrimRight(line, "\r"), ":")
		switch {
		case line == "" || line == "\r":
			return name, version
		case ok && strings.EqualFold(key, "Name") && name == "":
			name = strings.TrimSpace(value)
		case ok && strings.EqualFold(key, "Version") && version == "":
			version = strings.TrimSpace(value)
		}
	}
	return name, version
}

// originName is the file in which installers record the address of a package (PEP 610).
const originName = "direct_url.json"

// withoutSecrets removes user names, passwords and queries from the addresses that the installer has recorded. Queries may hold
// tokens, and programs can read the files.
func withoutSecrets(dir string) error {
	root, folders, err := metadataFolders(dir)
	if root != nil {
		defer root.Close() //nolint:errcheck // read only, or written by now
	}
	if err != nil {
		return err
	}
	for _, folder := range folders {
		name := path.Join(folder, originName)
		raw, err := readIn(root, name, 1<<20)
		if err != nil {
			continue // packages from an index have no such file
		}
		clean := cleanOrigin(raw)
		if bytes.Equal(clean, raw) {
			continue
		}
		if err := root.Remove(name); err != nil { // the file may be a link to another file of the environment
			return err
		}
		if clean == nil {
			continue
		}
		if err := root.WriteFile(name, clean, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// cleanOrigin returns the content of a direct_url.json without the secrets of its address, or nil if it cannot be parsed.
func cleanOrigin(raw []byte) []byte {
	var origin map[string]any
	if err := json.Unmarshal(raw, &origin); err != nil {
		return nil
	}
	address, _ := origin["url"].(string)
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	if u.User == nil && u.RawQuery == "" {
		return raw
	}
	u.User, u.RawQuery = nil, ""
	origin["url"] = u.String()
	clean, err := json.Marshal(origin)
	if err != nil {
		return nil
	}
	return clean
}
