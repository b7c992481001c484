package dockertest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/volume"
	"golang.org/x/sys/unix"

	"github.com/python-executor/python-executor/core/executor/leftovertest"
)

// cachePrefix begins the name of the cache's folder for one version of Docker. A change of what is kept there changes the number.
const cachePrefix = "dockerd-1-"

// cache is the data of a private daemon that stays in the project's cache folder, with the test images. One daemon at a time has it; others
// begin with empty data of their own.
//
// The folder holds data, lock (locked as long as a process of the daemon lives) and used, which is there unless the last daemon has
// ended well. Data of a daemon that has not is not trusted, and removed.
type cache struct {
	dir  string
	lock *os.File
}

func (c *cache) data() string { return filepath.Join(c.dir, "data") }

func (c *cache) used() string { return filepath.Join(c.dir, "used") }

// openCache returns the cached data; nil if another daemon has it.
func openCache() (*cache, error) {
	root, err := os.UserCacheDir()
	if err != nil {
		return nil, nil //nolint:nilnil,nilerr // without a cache folder nothing stays
	}
	version, err := exec.Command("dockerd", "--version").Output()
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(version)
	c := &cache{dir: filepath.Join(root, "python-executor", fmt.Sprintf("%s%x", cachePrefix, key[:6]))}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, err
	}
	if c.lock, err = os.OpenFile(filepath.Join(c.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	if unix.Flock(int(c.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		c.lock.Close()
		return nil, nil //nolint:nilnil // see above
	}
	stale := filepath.Join(c.data(), "network") // it names the bridge of the last daemon
	if _, killed := os.Stat(c.used()); killed == nil {
		leftovertest.Unmount(c.dir)
		stale = c.data()
	}
	err = os.RemoveAll(stale)
	if err == nil {
		err = os.WriteFile(c.used(), nil, 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, c.lock.Close())
	}
	return c, nil
}

// empty removes all but the test images from host's daemon, which has the data.
func empty(host string) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), stopTime, errors.New("the daemon does not answer"))
	defer cancel()
	cli, done, err := dial(host)
	if err != nil {
		return err
	}
	defer done()
	containers, err := cli.ContainerList(ctx, container.ListOptions{All: true})
	for _, c := range containers {
		err = errors.Join(err, cli.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	}
	volumes, listed := cli.VolumeList(ctx, volume.ListOptions{})
	err = errors.Join(err, listed)
	for _, v := range volumes.Volumes {
		err = errors.Join(err, cli.VolumeRemove(ctx, v.Name, true))
	}
	isTestImage := func(name string) bool {
		return slices.ContainsFunc(tags, func(tag string) bool { return nameOf(tag) == name })
	}
	images, listed := cli.ImageList(ctx, image.ListOptions{All: true})
	err = errors.Join(err, listed)
	var kept int
	for _, i := range images {
		if slices.ContainsFunc(i.RepoTags, isTestImage) {
			kept++
			for _, name := range i.RepoTags {
				if !isTestImage(name) {
					_, untagged := cli.ImageRemove(ctx, name, image.RemoveOptions{})
					err = errors.Join(err, untagged)
				}
			}
			continue
		}
		_, _ = cli.ImageRemove(ctx, i.ID, image.RemoveOptions{Force: true, PruneChildren: true}) // its children may still be there
	}
	left, listed := cli.ImageList(ctx, image.ListOptions{All: true})
	if err = errors.Join(err, listed); err == nil && len(left) > kept {
		return fmt.Errorf("%d images are left, want %d", len(left), kept)
	}
	return err
}

// well notes that the daemon has ended as it should.
func (c *cache) well() error { return os.Remove(c.used()) }

// close lets other daemons have the data when the daemon's processes have ended.
func (c *cache) close() { c.lock.Close() }
