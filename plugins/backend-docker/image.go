package dockerbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// imageInfo is an image that is at hand.
type imageInfo struct {
	// ID is what containers are made from.
	ID string
	// Digest is for the Result: the registry's, else the image's own id, "sha256:…".
	Digest string
	// Path is the PATH of programs, and Env the rest of the image's environment, "NAME=value".
	Path string
	Env  []string
	// Volumes are folders that the image declares as volumes: each is to be covered.
	Volumes []string
	// Requirements is the resolved list of a prepared image, sorted.
	Requirements []string
	// Name is the image as it was asked for; empty: a prepared one.
	Name string
	// Trusted: the operator has marked the image as one that may see the credentials of package indexes.
	Trusted bool
}

// images decides which images may be used, fetches them, and prepares the ones with requirements.
type images struct {
	imagesOptions
	allow    allowList
	trusted  imageList
	settings prepareSettings

	end      context.CancelCauseFunc
	pulls    *flights[imageInfo]
	prepares *flights[prepared]
	cache    *preparedCache

	mu sync.Mutex
	// seen are the images that were handed out a moment ago, by the name that was asked for.
	seen map[string]seenImage
	// declared are the volumes of images that were handed out, by id.
	declared map[string][]string
}

// imagesOptions are what images are made of.
type imagesOptions struct {
	daemon *daemon
	// place tells of containers what is the same for all.
	place place
	// network is that of programs which may use one.
	network func(context.Context) (string, error)
	// under says what a runtime puts below what runs.
	under func(runtime string) under
	// interpreter finds an image's Python.
	interpreter func(context.Context, imageInfo) (interpreter, error)
	host        hostSettings
	log         *slog.Logger
}

// seenImage is an image that need not be looked for again at once.
type seenImage struct {
	info imageInfo
	at   time.Time
}

const (
	// seenTime is how long an image is taken to be there after it was seen. Who then misses it says so to forget.
	seenTime = 10 * time.Second
	// maxSeen bounds what is remembered of images.
	maxSeen = 1000
)

// errImagesClosed ends what is under way when the backend closes.
var errImagesClosed = errors.New("the backend is closing")

// newImages makes the images of the backend called name. Codes: invalid.
func newImages(name string, c Config, o imagesOptions) (*images, error) {
	section := "backends." + name
	allow, err := newAllowList(c.Images, c.DefaultImage, section+".images")
	if err != nil {
		return nil, err
	}
	trusted, err := newImageList(c.TrustedImages, section+".trusted_images")
	if err != nil {
		return nil, err
	}
	settings, err := newPrepareSettings(c.Prepare, section+".prepare", o.host)
	if err != nil {
		return nil, err
	}
	settings.trust = section + ".trusted_images"
	o.place.Runtime = cmp.Or(c.Prepare.Runtime, c.Runtime)
	o.place.Under = o.under(o.place.Runtime)
	base, end := context.WithCancelCause(context.Background())
	return &images{
		imagesOptions: o, allow: allow, trusted: trusted, settings: settings, end: end,
		pulls: newFlights[imageInfo](base), prepares: newFlights[prepared](base), cache: newPreparedCache(o.daemon, c.Prepare.CacheBytes, o.log),
		seen: map[string]seenImage{}, declared: map[string][]string{},
	}, nil
}

// close ends pulls and preparations and waits until nothing of them is left. Idempotent.
func (i *images) close() {
	i.end(errImagesClosed)
	i.pulls.wg.Wait()
	i.prepares.wg.Wait()
}

// ensure returns an image that may be used, and fetches it if the daemon has it not. progress is told what happens, on this
// goroutine, at most five times a second. Everybody who wants the same image waits for one pull, which goes on as long as
// somebody does. Codes: invalid (no name, or no such image), denied (not on the list, or the registry does not let us),
// unavailable (the registry), all of the field docker_image; unavailable without a field (the daemon); the end of ctx gives
// its cause.
func (i *images) ensure(ctx context.Context, ref string, progress func(executor.Progress)) (imageInfo, error) {
	r, err := i.allow.check(ref)
	if err != nil {
		return imageInfo{}, err
	}
	if info, ok := i.recent(r.String()); ok {
		return info, nil
	}
	facts, err := i.daemon.image(ctx, r.String())
	if err == nil {
		return i.hand(r, facts), nil
	}
	if executor.CodeOf(err) != executor.NotFound {
		return imageInfo{}, err
	}
	return i.pulls.wait(ctx, r.String(), progress, func(ctx context.Context, progress func(executor.Progress)) (imageInfo, error) {
		return i.fetch(ctx, r, progress)
	})
}

// fetch pulls an image.
func (i *images) fetch(ctx context.Context, r imageRef, progress func(executor.Progress)) (imageInfo, error) {
	begun := time.Now()
	if err := i.pull(ctx, r, progress); err != nil {
		return imageInfo{}, err
	}
	i.log.Info("image pulled", "image", r.familiar(), "seconds", time.Since(begun).Seconds())
	facts, err := i.daemon.image(ctx, r.String())
	if err != nil {
		return imageInfo{}, fmt.Errorf("after it was pulled: %w", err)
	}
	return i.hand(r, facts), nil
}

// recent returns an image that was seen a moment ago.
func (i *images) recent(name string) (imageInfo, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s, ok := i.seen[name]
	return s.info, ok && time.Since(s.at) < seenTime
}

// hand puts together what is known about an image that was asked for as r, and remembers it.
func (i *images) hand(r imageRef, facts imageFacts) imageInfo {
	path, env := splitPath(facts.Env)
	info := imageInfo{ID: facts.ID, Digest: digestOf(r, facts), Path: path, Env: env, Volumes: facts.Volumes, Name: r.familiar(), Trusted: i.trusted.has(r)}
	i.remember(r.String(), info)
	return info
}

func (i *images) remember(name string, info imageInfo) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.seen) >= maxSeen {
		clear(i.seen)
	}
	i.seen[name] = seenImage{info, time.Now()}
	if len(i.declared) >= maxSeen {
		clear(i.declared)
	}
	i.declared[info.ID] = info.Volumes
}

// volumes are the folders that an image declares as volumes. It has been handed out.
func (i *images) volumes(id string) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.declared[id]
}

// forget makes the next one who asks look again: the image with this id was missed.
func (i *images) forget(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for name, s := range i.seen {
		if s.info.ID == id {
			delete(i.seen, name)
		}
	}
}

// digestOf is the digest of the repository that was asked for; an image may have come from several.
func digestOf(r imageRef, facts imageFacts) string {
	if r.digest != "" {
		return r.digest
	}
	for _, text := range facts.RepoDigests {
		if of, err := parseRef(text); err == nil && of.repository == r.repository {
			return of.digest
		}
	}
	return facts.ID
}

// imagePath is the PATH of an image that has none.
const imagePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func splitPath(env []string) (path string, rest []string) {
	path = imagePath
	for _, pair := range env {
		if value, ok := strings.CutPrefix(pair, "PATH="); ok {
			path = value
		} else {
			rest = append(rest, pair)
		}
	}
	return path, rest
}
