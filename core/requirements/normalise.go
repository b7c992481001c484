package requirements

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Bounds of a requirements text.
const (
	maxRequirementsBytes = 1 << 20
	maxRequirements      = 4096
)

var (
	// requirementForm is a PEP 508 requirement: name, extras, and what follows them.
	requirementForm = compiled(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)[ \t]*(\[[A-Za-z0-9._, \t-]*\])?[ \t]*(.*)$`)
	hashForm        = compiled(`[ \t]+--hash[= ](sha256|sha384|sha512):([0-9a-fA-F]+)`)
	archiveForm     = compiled(`(?i)\.(whl|zip|tgz|tar|tbz|txz|tlz|egg|gz|bz2|xz|zst|lzma)$`)
	separators      = compiled(`[-_.]+`)
)

var errNoRequirement = errors.New("must be a requirement, such as numpy>=2")

// Options tell what a requirements text may ask for.
type Options struct {
	// AllowBuilds allows packages that must be built, which executes code of the package. Default: false, wheels only.
	AllowBuilds bool
	// Setting is the name of AllowBuilds in the configuration ("backends.uv.allow_builds"), for error messages.
	Setting string
	// CheckURL refuses URLs by their host. nil refuses none.
	CheckURL func(address string) error
}

// Normalise turns a requirements.txt text into sorted requirement lines without comments and duplicates. Texts with the same
// set of requirements give the same lines. Normalise returns an error for what would reach the host or an index other than
// the configured one: options and files. Unless builds are allowed, sources that must be built are also an error.
func Normalise(text string, o Options) ([]string, error) {
	if len(text) > maxRequirementsBytes {
		return nil, fmt.Errorf("must have at most %d bytes (got %d)", maxRequirementsBytes, len(text))
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("must be UTF-8 text")
	}
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\\\n", " ")
	var lines []string
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(stripComment(line))
		if line == "" || line == "--require-hashes" {
			continue
		}
		clean, err := requirement(line, o)
		if err == nil {
			err = stable(clean, o)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d, %q: %w", number+1, Shorten(WithoutCredentials(line), 200), err)
		}
		lines = append(lines, clean)
	}
	if len(lines) > maxRequirements {
		return nil, fmt.Errorf("must have at most %d requirements (got %d)", maxRequirements, len(lines))
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil
}

// stable refuses a normal form that uv or pip would read differently: a part of it is now a comment, or it continues in the
// next line. Such a set would have two normal forms, and uv or pip would install other packages than the user wrote.
func stable(clean string, o Options) error {
	again, err := requirement(strings.TrimSpace(stripComment(clean)), o)
	if err != nil || again != clean || strings.HasSuffix(clean, "\\") {
		return errNoRequirement
	}
	return nil
}

// stripComment removes a comment, which begins with # at the start of the line or after white space.
func stripComment(line string) string {
	for i, r := range line {
		if r == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			return line[:i]
		}
	}
	return line
}

// requirement returns the normal form of one line.
func requirement(line string, o Options) (string, error) {
	if strings.ContainsFunc(line, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
		return "", fmt.Errorf("must not have control characters")
	}
	if strings.Contains(line, "${") {
		// uv would expand its own environment, which holds index credentials.
		return "", fmt.Errorf("must not have variables: ${NAME} is not expanded")
	}
	if strings.HasPrefix(line, "-") {
		return "", fmt.Errorf("options are not allowed, except --hash after a requirement")
	}
	var hashes []string
	line = hashForm().ReplaceAllStringFunc(line, func(h string) string {
		m := hashForm().FindStringSubmatch(h)
		hashes = append(hashes, "--hash="+m[1]+":"+strings.ToLower(m[2]))
		return ""
	})
	m := requirementForm().FindStringSubmatch(strings.TrimSpace(line))
	if name, ok := repository(line); ok {
		if !o.AllowBuilds {
			return "", fmt.Errorf("must be a package of the index, or NAME @ https://…/FILE.whl: a repository is built, which needs %s", o.Setting)
		}
		return "", fmt.Errorf("must have a name before the URL: %s @ %s", name, strings.TrimSpace(line))
	}
	if m == nil || archiveForm().MatchString(m[1]) && m[3] == "" {
		return "", fmt.Errorf("files, folders and URLs are not allowed: name a package, or write NAME @ https://…/FILE.whl")
	}
	name, extras, rest := strings.ToLower(separators().ReplaceAllString(m[1], "-")), normaliseExtras(m[2]), strings.TrimSpace(m[3])
	if url, direct := strings.CutPrefix(rest, "@"); direct {
		if err := directURL(strings.TrimSpace(url), o); err != nil {
			return "", err
		}
		rest = " @ " + strings.TrimSpace(url)
	} else {
		if rest != "" && !strings.ContainsRune("(<>=!~;", rune(rest[0])) {
			return "", errNoRequirement
		}
		rest = normaliseVersion(rest)
	}
	slices.Sort(hashes)
	return strings.Join(append([]string{name + extras + rest}, slices.Compact(hashes)...), " "), nil
}

// repository reports whether a line is the URL of a repository without a name (git+https://…), and the name that the package probably has.
func repository(line string) (name string, ok bool) {
	system, address, found := strings.Cut(strings.TrimSpace(line), "+")
	if !found || !slices.Contains([]string{"git", "hg", "svn", "bzr"}, strings.ToLower(system)) || !strings.Contains(address, "://") {
		return "", false
	}
	address, _, _ = strings.Cut(address, "#")
	name = strings.TrimSuffix(address[strings.LastIndexByte(address, '/')+1:], ".git")
	name, _, _ = strings.Cut(name, "@")
	name = strings.TrimSuffix(name, ".git")
	if name == "" {
		name = "NAME"
	}
	return strings.ToLower(name), true
}

func normaliseExtras(text string) string {
	var extras []string
	for _, e := range strings.Split(strings.Trim(text, "[]"), ",") {
		if e = strings.TrimSpace(e); e != "" {
			extras = append(extras, strings.ToLower(separators().ReplaceAllString(e, "-")))
		}
	}
	if len(extras) == 0 {
		return ""
	}
	slices.Sort(extras)
	return "[" + strings.Join(slices.Compact(extras), ",") + "]"
}

// normaliseVersion removes the spaces from a version specification, and collapses the spaces in a marker.
func normaliseVersion(rest string) string {
	version, marker, found := strings.Cut(rest, ";")
	version = strings.Join(strings.Fields(version), "")
	if strings.HasPrefix(version, "(") && strings.HasSuffix(version, ")") {
		version = version[1 : len(version)-1]
	}
	if found {
		return version + " ; " + strings.Join(strings.Fields(marker), " ")
	}
	return version
}

// directURL returns an error unless the part after @ is allowed. Wheels over https are always allowed. Archives and version
// control over https are allowed if builds are. Files of the host are never allowed.
func directURL(rest string, o Options) error {
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return fmt.Errorf("must have a URL after @")
	}
	address := fields[0]
	scheme, path, found := strings.Cut(address, "://")
	if !found || strings.EqualFold(scheme, "file") {
		return fmt.Errorf("files of the host are not allowed: give a URL that begins with https://")
	}
	path, _, _ = strings.Cut(path, "#")
	path, _, _ = strings.Cut(path, "?")
	switch {
	case scheme == "https" && strings.HasSuffix(strings.ToLower(path), ".whl"):
	case !o.AllowBuilds:
		return fmt.Errorf("the URL must be a wheel over https, because other sources are built, which needs %s", o.Setting)
	case scheme == "https", scheme == "git+https": // other tools of version control do not obey a proxy
	default:
		return fmt.Errorf("the URL must begin with https:// or git+https://")
	}
	if o.CheckURL == nil {
		return nil
	}
	return o.CheckURL(address)
}

// Name returns the normalised name of a package, as lists of resolved packages have it.
func Name(name string) string { return strings.ToLower(separators().ReplaceAllString(name, "-")) }

// Shorten returns s if it has at most n bytes. Otherwise it returns at most n bytes of s, cut at a rune, and "…".
func Shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// compiled returns a function that returns the regular expression. The first call compiles it, so that a process does not pay for
// expressions that it does not use.
func compiled(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
