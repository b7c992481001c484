package requirements

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
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
	requirementForm = regexp.MustCompile(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)[ \t]*(\[[A-Za-z0-9._, \t-]*\])?[ \t]*(.*)$`)
	hashForm        = regexp.MustCompile(`[ \t]+--hash[= ](sha256|sha384|sha512):([0-9a-fA-F]+)`)
	archiveForm     = regexp.MustCompile(`(?i)\.(whl|zip|tgz|tar|tbz|txz|tlz|egg|gz|bz2|xz|zst|lzma)$`)
	separators      = regexp.MustCompile(`[-_.]+`)
)

var errNoRequirement = errors.New("is not a requirement")

// Options say what a requirements text may ask for.
type Options struct {
	// AllowBuilds: also what must be built, which executes code of the package. Default: wheels only.
	AllowBuilds bool
	// Setting is the configuration's name for that ("backends.uv.allow_builds"), for messages.
	Setting string
}

// Normalise turns a requirements.txt text into sorted requirement lines without comments and duplicates: the same set
// gives the same lines, however it was written. What would reach the host or another index than the configured one is an
// error: options, files, and, unless builds are allowed, everything that would have to be built.
func Normalise(text string, o Options) ([]string, error) {
	if len(text) > maxRequirementsBytes {
		return nil, fmt.Errorf("longer than %d bytes", maxRequirementsBytes)
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("is not UTF-8 text")
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
		return nil, fmt.Errorf("more than %d requirements", maxRequirements)
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil
}

// stable refuses a normal form that would be read as something else: with a part that has become a comment, or that goes on in
// the next line. The same set would then have two normal forms, and uv or pip would install another set than the user wrote.
func stable(clean string, o Options) error {
	again, err := requirement(strings.TrimSpace(stripComment(clean)), o)
	if err != nil || again != clean || strings.HasSuffix(clean, "\\") {
		return errNoRequirement
	}
	return nil
}

// stripComment cuts a comment: a # at the start or after white space.
func stripComment(line string) string {
	for i, r := range line {
		if r == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			return line[:i]
		}
	}
	return line
}

func requirement(line string, o Options) (string, error) {
	if strings.ContainsFunc(line, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
		return "", fmt.Errorf("has a control character")
	}
	if strings.Contains(line, "${") {
		// uv would put its own environment there, index credentials included.
		return "", fmt.Errorf("variables are not expanded here")
	}
	if strings.HasPrefix(line, "-") {
		return "", fmt.Errorf("options are not allowed here: only requirements, and --hash after one")
	}
	var hashes []string
	line = hashForm.ReplaceAllStringFunc(line, func(h string) string {
		m := hashForm.FindStringSubmatch(h)
		hashes = append(hashes, "--hash="+m[1]+":"+strings.ToLower(m[2]))
		return ""
	})
	m := requirementForm.FindStringSubmatch(strings.TrimSpace(line))
	if m == nil || archiveForm.MatchString(m[1]) && m[3] == "" {
		return "", fmt.Errorf("files, folders and addresses are not allowed here: name a package, or NAME @ https://…/FILE.whl")
	}
	name, extras, rest := strings.ToLower(separators.ReplaceAllString(m[1], "-")), normaliseExtras(m[2]), strings.TrimSpace(m[3])
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

func normaliseExtras(text string) string {
	var extras []string
	for _, e := range strings.Split(strings.Trim(text, "[]"), ",") {
		if e = strings.TrimSpace(e); e != "" {
			extras = append(extras, strings.ToLower(separators.ReplaceAllString(e, "-")))
		}
	}
	if len(extras) == 0 {
		return ""
	}
	slices.Sort(extras)
	return "[" + strings.Join(slices.Compact(extras), ",") + "]"
}

// normaliseVersion drops the spaces of a version specification and leaves a marker as it is.
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

// directURL says whether the part after @ may be used: a wheel over https always; with builds allowed also archives and
// version control over https. Nothing may name a file of the host.
func directURL(rest string, o Options) error {
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return fmt.Errorf("has no address after @")
	}
	address := fields[0]
	scheme, path, found := strings.Cut(address, "://")
	if !found || strings.EqualFold(scheme, "file") {
		return fmt.Errorf("files of the host are not allowed here")
	}
	path, _, _ = strings.Cut(path, "#")
	path, _, _ = strings.Cut(path, "?")
	switch {
	case scheme == "https" && strings.HasSuffix(strings.ToLower(path), ".whl"):
		return nil
	case !o.AllowBuilds:
		return fmt.Errorf("only wheels over https are allowed here: %s lets others be built", o.Setting)
	case scheme == "https" || scheme == "git+https" || scheme == "hg+https" || scheme == "bzr+https" || scheme == "svn+https":
		return nil
	}
	return fmt.Errorf("only https is allowed here")
}

// Name is the normalised name of a package, as a resolved list has it.
func Name(name string) string { return strings.ToLower(separators.ReplaceAllString(name, "-")) }

// Shorten cuts s to at most n bytes at a rune.
func Shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
