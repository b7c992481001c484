package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/runner/protocol"
)

// The folders of a box's tmpfs. The box's programs see only the first.
const (
	boxRoot = "root"
	boxDisk = "disk"
)

// systemFolders are what a box has of the machine.
func systemFolders() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
}

// systemFiles are what a box has of the machine's /etc, as far as it exists, as patterns of names: what the C library, OpenSSL and Python
// read, and what packages keep there of their own data, to which links in /usr lead. Files in which an administrator writes passwords,
// tokens, users or names of hosts are not among them: such as environment, profile.d, odbc.ini, wgetrc, pip.conf, npmrc, maven/settings.xml,
// R/Renviron.site, ssh.
func systemFiles() []string {
	return []string{
		"alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "gai.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
		"locale.alias", "locale.conf", "localtime", "mime.types", "os-release", "pki", "protocols", "python3*", "resolv.conf", "services", "ssl", "timezone",
		// the names of the system, for programs that look by them
		"debian_version", "fedora-release", "lsb-release", "redhat-release", "system-release",
		// fonts, images, documents
		"ImageMagick-*", "fonts", "ghostscript", "groff", "libpaper.d", "magic", "magic.mime", "mailcap", "papersize", "paperspecs", "povray", "sgml",
		"texmf", "xml",
		// languages and libraries
		"OpenCL", "R/Makeconf", "R/Renviron", "R/Rprofile.site", "R/javaconf", "R/ldpaths", "R/repositories", "X11/app-defaults", "X11/rgb.txt", "drirc",
		"glvnd", "gtk-2.0", "gtk-3.0", "gtk-4.0", "inputrc", "java", "java-*", "jvm", "matplotlibrc", "maven/logging", "maven/m2.conf",
		"odbcinst.ini", "openmpi*", "perl", "pmix*", "prrte", "terminfo", "vulkan",
	}
}

// systemData are what a box has of the machine's /var, as far as it exists: what packages have made when they were installed.
func systemData() []string {
	return []string{"/var/cache/fontconfig", "/var/lib/dictionaries-common", "/var/lib/ghostscript", "/var/lib/texmf"}
}

// hostNames are files of systemFiles that hold the name of the machine. They are empty in a box.
func hostNames() []string { return []string{"/etc/ssl/certs/ssl-cert-snakeoil.pem"} }

// devices are those of a box.
func devices() []string { return []string{"null", "zero", "full", "random", "urandom", "tty"} }

// boxName is the host name in a box.
const boxName = "sandbox"

// makeBoxRoot mounts a small tmpfs on dir and makes the box's root folder in it. Its mounts are shared, so those that the runner
// adds and removes later appear and vanish in the box, too.
func makeBoxRoot(dir string, cfg protocol.Config) (*view, error) {
	if err := unix.Mount("tmpfs", dir, "tmpfs", diskFlags, "mode=0755,size=1m,nr_inodes=8192"); err != nil {
		return nil, fmt.Errorf("root folder: mount: %w", err)
	}
	for _, name := range []string{boxDisk, boxRoot, boxShown} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil { //nolint:gosec // programs pass through
			return nil, fmt.Errorf("root folder: %w", err)
		}
	}
	if err := makeShown(filepath.Join(dir, boxShown), ownCPUBound()); err != nil {
		return nil, fmt.Errorf("root folder: %w", err)
	}
	v, err := openView(filepath.Join(dir, boxRoot))
	if err != nil {
		return nil, fmt.Errorf("root folder: %w", err)
	}
	if err := errors.Join(v.makeFolders(), v.bindSystem(), v.makeEtc(cfg), v.makeDev(), v.makeSys()); err != nil {
		return nil, errors.Join(fmt.Errorf("root folder: %w", err), v.close())
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return nil, errors.Join(fmt.Errorf("root folder: shared mounts: %w", err), v.close())
	}
	return v, nil
}

func (v *view) makeFolders() error {
	for _, dir := range []string{"dev/pts", "dev/shm", "etc", "proc", "run/lock", "sys/fs/cgroup", "tmp", "var/tmp", "work"} {
		if err := v.root.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // programs pass through
			return err
		}
	}
	for _, name := range shownHierarchies() { // see mountShown
		if err := v.root.Mkdir("sys/fs/cgroup/"+name, 0o755); err != nil {
			return err
		}
	}
	return errors.Join(v.root.Symlink("../run", "var/run"), v.root.Symlink("../run/lock", "var/lock"), v.root.Symlink("../dev/shm", "run/shm"))
}

// bindSystem binds the system folders, and makes links where the machine has links.
func (v *view) bindSystem() error {
	for _, dir := range systemFolders() {
		if err := v.copyOrBind(dir); err != nil {
			return err
		}
	}
	return nil
}

// copyOrBind makes the same link as the machine, or binds what is there read-only.
func (v *view) copyOrBind(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() == fs.ModeSymlink && !strings.HasSuffix(path, "/resolv.conf") {
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return v.root.Symlink(target, strings.TrimPrefix(path, "/"))
	}
	err = v.bindPath(path, path, readOnly)
	if errors.Is(err, fs.ErrNotExist) { // a link to nothing
		return nil
	}
	return err
}

func (v *view) makeEtc(cfg protocol.Config) error {
	ours := cfg.UID == 0 // programs run as the runner's user
	if ours {
		cfg.UID, cfg.GID = os.Getuid(), os.Getgid()
	}
	uid, gid := strconv.Itoa(cfg.UID), strconv.Itoa(cfg.GID)
	users, groups := "root:x:0:0:root:/root:/usr/sbin/nologin\n", "root:x:0:\n"
	if cfg.UID == 0 {
		users = "root:x:0:0:root:" + workPath + ":/bin/sh\n"
	} else {
		users += "sandbox:x:" + uid + ":" + gid + ":sandbox:" + workPath + ":/bin/sh\n"
		groups += "sandbox:x:" + gid + ":\n"
	}
	for name, text := range map[string]string{
		"passwd":        users + "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         groups + "nogroup:x:65534:\n",
		"hosts":         "127.0.0.1 localhost " + boxName + "\n::1 localhost " + boxName + "\n",
		"hostname":      boxName + "\n",
		"host.conf":     "multi on\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
	} {
		if err := v.write("etc/"+name, []byte(text)); err != nil {
			return err
		}
	}
	for _, pattern := range systemFiles() {
		paths, err := filepath.Glob("/etc/" + pattern)
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := v.root.MkdirAll(strings.TrimPrefix(filepath.Dir(path), "/"), 0o755); err != nil { //nolint:gosec // programs pass through
				return err
			}
			if err := v.copyOrBind(path); err != nil {
				return err
			}
			if ours {
				if err := v.hidePrivate(path); err != nil {
					return err
				}
			}
		}
	}
	for _, path := range systemData() {
		if err := v.copyOrBind(path); err != nil {
			return err
		}
	}
	for _, path := range hostNames() {
		if err := v.hide(path, filepath.Join(filepath.Dir(v.path), boxShown, emptyFile)); err != nil {
			return err
		}
	}
	return v.root.Symlink("/proc/mounts", "etc/mtab")
}

// hidePrivate hides what not everybody may read of a file or folder that the box has of the machine. Programs that have a user of their own
// cannot read it anyway. Others run as the runner's user, and have its groups.
func (v *view) hidePrivate(path string) error {
	shown := filepath.Join(filepath.Dir(v.path), boxShown)
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil { // who cannot look there has no program that could
			return nil //nolint:nilerr // as it says
		}
		st, err := d.Info()
		switch {
		case err != nil || d.Type() == fs.ModeSymlink: // it is gone, or its target counts
		case !d.IsDir() && st.Mode()&0o4 == 0:
			return v.hide(path, filepath.Join(shown, emptyFile))
		case d.IsDir() && st.Mode()&0o5 != 0o5:
			if err := v.hide(path, filepath.Join(shown, emptyFolder)); err != nil {
				return err
			}
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("hide what is private: %w", err)
	}
	return nil
}

// hide puts a file or folder that is empty over one that the box has of the machine.
func (v *view) hide(path, empty string) error {
	target, err := v.open(path)
	if err != nil {
		return nil //nolint:nilerr // the box does not have it
	}
	defer unix.Close(target) //nolint:errcheck // nothing was written
	source, err := unix.Open(empty, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: empty, Err: err}
	}
	defer unix.Close(source) //nolint:errcheck // nothing was written
	return bindAt(source, target, readOnly, false)
}

// makeSys binds what libraries read about processors: their number and how they share cores and caches. It is what /proc/cpuinfo tells, too.
func (v *view) makeSys() error {
	const cpu = "/sys/devices/system/cpu"
	err := v.bindPath(cpu, cpu, readOnly|unix.MOUNT_ATTR_NOEXEC)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (v *view) makeDev() error {
	for _, name := range devices() {
		// A device on a mount without devices could not be opened.
		err := v.bindPath("/dev/"+name, "dev/"+name, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		if err := v.root.Symlink(target, "dev/"+name); err != nil {
			return err
		}
	}
	if err := unix.Mount("devpts", v.at("dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return fmt.Errorf("mount devpts: %w", err)
	}
	return nil
}
