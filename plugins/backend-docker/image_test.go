package dockerbackend

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

// toyImages returns images of a daemon that has every image, or answers with status if that is not 0. asked returns the requests.
func toyImages(t *testing.T, c Config, status int) (i *images, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var calls []string
	d := toyDaemon(t, func(r *http.Request, path string) (int, string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, r.Method+" "+path)
		if status != 0 {
			return status, `{"message":"the daemon fails"}`
		}
		return http.StatusOK, `{"Id":"sha256:id","Config":{"Env":["PATH=","LANG=C"]}}`
	})
	host := hostSettings{env: func(string) string { return "" }}
	o := imagesOptions{daemon: d, log: slog.New(slog.DiscardHandler), host: host, under: func(runtime string) under { return under{vm: runtime == "kata"} }}
	i, err := newImages(t.Context(), "docker", c, o)
	if err != nil {
		t.Fatal(err)
	}
	return i, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(calls)
	}
}

func TestAnImageThatWasSeenIsNotLookedForAgain(t *testing.T) {
	t.Parallel()
	i, asked := toyImages(t, Default(), 0)
	const name = "docker.io/library/python:3.12"
	for _, step := range []struct {
		before string
		do     func()
		asked  int
	}{
		{"the first request", func() {}, 1},
		{"the second request", func() {}, 1},
		{"another image was forgotten", func() { i.forget("sha256:other") }, 1},
		{"the image was forgotten", func() { i.forget("sha256:id") }, 2},
		{"some time has passed", func() { i.seen[name] = seenImage{i.seen[name].info, time.Unix(1, 0)} }, 3},
	} {
		step.do()
		info, err := i.ensure(t.Context(), "python:3.12", func(executor.Progress) {})
		if err != nil || info.ID != "sha256:id" || info.Path != imagePath || !slices.Equal(info.Env, []string{"LANG=C"}) {
			t.Errorf("%s: %+v, %v", step.before, info, err)
		}
		if got := len(asked()); got != step.asked {
			t.Errorf("%s: %d requests, want %d", step.before, got, step.asked)
		}
	}
}

func TestADaemonThatFailsIsNotAskedToPull(t *testing.T) {
	t.Parallel()
	i, asked := toyImages(t, Default(), http.StatusInternalServerError)
	_, err := i.ensure(t.Context(), "python:3.12", func(executor.Progress) {})
	if executor.CodeOf(err) != executor.Unavailable || ofField(err, "docker_image") || len(asked()) != 1 {
		t.Errorf("%v; the requests were %q", err, asked())
	}
}

func TestWhatIsRememberedOfImagesIsBounded(t *testing.T) {
	t.Parallel()
	i, _ := toyImages(t, Default(), 0)
	for n := range maxSeen + 1 {
		i.remember(fmt.Sprint("python:", n), imageInfo{ID: fmt.Sprint("sha256:", n)})
	}
	last := fmt.Sprint("sha256:", maxSeen)
	if len(i.seen) > maxSeen || len(i.handed) > maxSeen || i.returned(last).ID != last {
		t.Errorf("%d names and %d images are remembered; the last is %+v", len(i.seen), len(i.handed), i.returned(last))
	}
}

// TestATrustedImageStartsAnInterpreterAhead: it is the operator's, even if it is not the default image.
func TestATrustedImageStartsAnInterpreterAhead(t *testing.T) {
	t.Parallel()
	c := Default()
	c.TrustedImages = []string{"team/app:*"}
	i, _ := toyImages(t, c, 0)
	for name, want := range map[string]bool{"team/app:1": true, "team/other:1": false} {
		r, err := imagename.ParseRef(name)
		if err != nil {
			t.Fatal(err)
		}
		if info := i.hand(r, imageFacts{ID: name}); info.Trusted != want || info.Ahead != want {
			t.Errorf("%s: %+v", name, info)
		}
	}
}

func TestTheRuntimeOfPreparationsIsTheirOwnElseThatOfPrograms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		programs, preparations, want string
	}{{"runc", "", "runc"}, {"runc", "kata", "kata"}, {"kata", "", "kata"}, {"", "", ""}} {
		config := Default()
		config.Runtime, config.Prepare.Runtime = c.programs, c.preparations
		if i, _ := toyImages(t, config, 0); i.place.Runtime != c.want || i.place.Under.vm != (c.want == "kata") {
			t.Errorf("%+v: %q %+v", c, i.place.Runtime, i.place.Under)
		}
	}
}

func TestTheDigestOfARequestIsThatOfTheImage(t *testing.T) {
	t.Parallel()
	r, err := imagename.ParseRef("python@" + someDigest)
	if err != nil {
		t.Fatal(err)
	}
	if got := digestOf(r, imageFacts{ID: "sha256:id", RepoDigests: []string{"python@sha256:" + strings.Repeat("b", 64)}}); got != someDigest {
		t.Errorf("%s, want %s", got, someDigest)
	}
}

// toyPrepared is a daemon with prepared images, by name and id. It notes tags and removals.
type toyPrepared struct {
	mu      sync.Mutex
	images  map[string]string // the daemon's description, by id
	refused map[string]int    // the status of a removal, by id
	calls   []string
}

// preparedKey returns a key that begins with letter.
func preparedKey(letter string) string { return strings.Repeat(letter, 64) }

// add adds a prepared image with 100 bytes.
func (y *toyPrepared) add(t *testing.T, id, key string, tagged time.Time) {
	t.Helper()
	raw, err := json.Marshal(map[string]any{
		"Id": id, "RepoTags": []string{preparedName(key)}, "Metadata": map[string]any{"LastTagTime": tagged},
		"Config": map[string]any{"Labels": map[string]string{labelPrepared: key, labelBytes: "100"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	y.images[id], y.images[preparedName(key)] = string(raw), string(raw)
}

func (y *toyPrepared) answer(r *http.Request, path string) (int, string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	id := strings.TrimPrefix(path, "/images/")
	switch {
	case path == "/images/json":
		var ids []string
		for id := range y.images {
			if !strings.Contains(id, "/") {
				ids = append(ids, `{"Id":"`+id+`"}`)
			}
		}
		slices.Sort(ids)
		return http.StatusOK, "[" + strings.Join(ids, ",") + "]"
	case r.Method == http.MethodDelete:
		y.calls = append(y.calls, "remove "+id)
		if code := y.refused[id]; code != 0 {
			delete(y.refused, id)
			return code, `{"message":"it cannot be removed"}`
		}
		delete(y.images, id)
		return http.StatusOK, "[]"
	case r.Method == http.MethodPost:
		y.calls = append(y.calls, "tag "+strings.TrimSuffix(id, "/tag"))
		return http.StatusCreated, ""
	}
	if raw := y.images[strings.TrimSuffix(id, "/json")]; raw != "" && raw != "gone" {
		return http.StatusOK, raw
	}
	return http.StatusNotFound, `{"message":"no such image"}`
}

// said returns the tags and removals since the last call.
func (y *toyPrepared) said() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	defer func() { y.calls = nil }()
	return strings.Join(y.calls, ", ")
}

// toyCache returns a cache of at most bytes, with its daemon and its clock.
func toyCache(t *testing.T, bytes int64) (c *preparedCache, y *toyPrepared, now *time.Time) {
	t.Helper()
	y = &toyPrepared{images: map[string]string{}, refused: map[string]int{}}
	c = newPreparedCache(toyDaemon(t, y.answer), bytes, slog.New(slog.DiscardHandler))
	now = new(time.Time)
	*now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c.now = func() time.Time { return *now }
	return c, y, now
}

func TestTheUseOfAPreparedImageIsRecordedOnceAMinute(t *testing.T) {
	t.Parallel()
	c, y, now := toyCache(t, 0)
	key := preparedKey("a")
	y.add(t, "a", key, now.Add(-time.Hour))
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{0, "tag a"}, {touchPause, ""}, {time.Second, "tag a"}, {time.Second, ""}} {
		*now = now.Add(step.after)
		if _, found, err := c.find(t.Context(), key); !found || err != nil {
			t.Fatal(found, err)
		}
		if got := y.said(); got != step.want {
			t.Errorf("%s later: %q, want %q", step.after, got, step.want)
		}
		if !c.used[key].Equal(*now) {
			t.Errorf("the last use is %s, want %s", c.used[key], *now)
		}
	}
	if _, found, err := c.find(t.Context(), preparedKey("b")); found || err != nil || len(c.used) != 1 {
		t.Errorf("found an image that is not there: %v, %v; uses %v", found, err, c.used)
	}
}

// TestAPreparedImageThatIsRequestedDuringAnEvictionStays: the list of the eviction is older than the request.
func TestAPreparedImageThatIsRequestedDuringAnEvictionStays(t *testing.T) {
	t.Parallel()
	c, y, now := toyCache(t, 0)
	key := preparedKey("a")
	listed := preparedEntry{id: "a", key: key, used: now.Add(-time.Hour)}
	y.add(t, "a", key, listed.used)
	c.used[key] = *now
	if c.remove(t.Context(), listed) || y.said() != "" {
		t.Error("the image was removed")
	}
	*now = now.Add(evictGrace)
	if !c.remove(t.Context(), listed) || len(c.used) > 0 {
		t.Errorf("the image is still there; uses %v", c.used)
	}
}

func TestTheCacheIsBroughtWithinItsBound(t *testing.T) {
	t.Parallel()
	old := -time.Hour
	for name, c := range map[string]struct {
		bytes   int64
		tagged  map[string]time.Duration // the age of each image's last tag
		used    map[string]time.Duration // and of its last use by this process
		refused map[string]int
		gone    string // an image that is removed by another while it is looked at
		want    string
		size    int64
	}{
		"it is within the bound":           {bytes: 200, tagged: map[string]time.Duration{"a": old, "b": old}, size: 200},
		"it is a byte beyond":              {bytes: 199, tagged: map[string]time.Duration{"a": 2 * old, "b": old}, want: "remove a", size: 100},
		"the use here is later":            {bytes: 199, tagged: map[string]time.Duration{"a": 3 * old, "b": 2 * old}, used: map[string]time.Duration{"a": old}, want: "remove b", size: 100},
		"another process used it just now": {bytes: 1, tagged: map[string]time.Duration{"a": -evictGrace + time.Second, "b": -evictGrace}, want: "remove b", size: 100},
		"this process used it just now":    {bytes: 1, tagged: map[string]time.Duration{"a": old, "b": old}, used: map[string]time.Duration{"a": -evictGrace + 1}, want: "remove b", size: 100},
		"another image is made from it": {
			bytes: 1, tagged: map[string]time.Duration{"a": 2 * old, "b": old}, refused: map[string]int{"a": http.StatusConflict}, want: "remove a, remove b, remove a",
		},
		"another process has removed it": {bytes: 1, tagged: map[string]time.Duration{"a": old}, refused: map[string]int{"a": http.StatusNotFound}, want: "remove a"},
		"one went meanwhile":             {bytes: 100, tagged: map[string]time.Duration{"a": old}, gone: "b", size: 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cache, y, now := toyCache(t, c.bytes)
			for id, age := range c.tagged {
				y.add(t, id, preparedKey(id), now.Add(age))
			}
			for id, age := range c.used {
				cache.used[preparedKey(id)] = now.Add(age)
			}
			if c.gone != "" {
				y.images[c.gone] = "gone"
			}
			y.refused = c.refused
			cache.evict(t.Context())
			if got := y.said(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if got := cache.metrics()["prepared_bytes"]; got != float64(c.size) {
				t.Errorf("the size is %v, want %d", got, c.size)
			}
		})
	}
}
