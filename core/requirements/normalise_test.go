package requirements

import (
	"strings"
	"testing"
)

func TestRequirementsThatMeanTheSameGiveTheSameLines(t *testing.T) {
	t.Parallel()
	texts := []string{
		"Requests [socks, Security] >= 2.0 , < 3\nmarkdown_it.py==3.0\n",
		"\ufeff# head\r\nmarkdown-it-py == 3.0 # why\r\n\r\nrequests[security,socks]>=2.0,<3\r\n",
		"markdown-it-py==3.0\nrequests[socks,security] (>=2.0,\\\n <3)\nmarkdown-it-py==3.0",
	}
	want := "markdown-it-py==3.0\nrequests[security,socks]>=2.0,<3"
	for _, text := range texts {
		lines, err := Normalise(text, Options{})
		if got := strings.Join(lines, "\n"); err != nil || got != want {
			t.Errorf("Normalise(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestRequirementLines(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("A", 64)
	for _, c := range []struct {
		name, line string
		builds     bool
		want       string // "" = refused
	}{
		{"a bare name is kept", "six", false, "six"},
		{"a marker is kept", `six>=1; python_version < "3.12"`, false, `six>=1 ; python_version < "3.12"`},
		{"hashes follow their requirement", "six==1.16 --hash=sha256:" + sum, false, "six==1.16 --hash=sha256:" + strings.Repeat("a", 64)},
		{"hashes are sorted, and each is there once", "six --hash=sha256:bb --hash=sha512:00 --hash sha256:AA --hash=sha256:bb", false, "six --hash=sha256:aa --hash=sha256:bb --hash=sha512:00"},
		{"a comment after a tab is removed", "six\t# why", false, "six"},
		{"extras are sorted, and each is there once", "six[B_c, a,b-c]", false, "six[a,b-c]"},
		{"a wheel with a query and a digest is kept", "six @ https://example.org/six-1-py3-none-any.whl?t=1#sha256=aa", false, "six @ https://example.org/six-1-py3-none-any.whl?t=1#sha256=aa"},
		{"an archive with the name of a wheel in its query is refused", "six @ https://example.org/six-1.tar.gz?x=.whl", false, ""},
		{"a wheel over https is kept", "six @ https://example.org/six-1-py3-none-any.whl", false, "six @ https://example.org/six-1-py3-none-any.whl"},
		{"a wheel over http is refused", "six @ http://example.org/six-1-py3-none-any.whl", false, ""},
		{"a source archive is refused", "six @ https://example.org/six-1.tar.gz", false, ""},
		{"a source archive is kept where builds are allowed", "six @ https://example.org/six-1.tar.gz", true, "six @ https://example.org/six-1.tar.gz"},
		{"version control is refused", "six @ git+https://example.org/six", false, ""},
		{"version control is kept where builds are allowed", "six @ git+https://example.org/six", true, "six @ git+https://example.org/six"},
		{"version control over ssh is always refused", "six @ git+ssh://example.org/six", true, ""},
		{"a file address is refused", "six @ file:///etc/passwd", true, ""},
		{"a path after @ is refused", "six @ /etc/passwd", true, ""},
		{"an absolute path is refused", "/etc/passwd", true, ""},
		{"a relative path is refused", "./here", true, ""},
		{"a folder is refused", "here/there", true, ""},
		{"a home path is refused", "~/there", true, ""},
		{"an archive name is refused", "six-1.16-py3-none-any.whl", true, ""},
		{"a bare address is refused", "https://example.org/six-1-py3-none-any.whl", true, ""},
		{"a bare git address is refused", "git+https://example.org/six", true, ""},
		{"an editable is refused", "-e .", true, ""},
		{"a nested file is refused", "-r other.txt", true, ""},
		{"a constraint file is refused", "-c other.txt", true, ""},
		{"an index is refused", "--index-url https://example.org/simple", true, ""},
		{"another index is refused", "--extra-index-url=https://example.org/simple", true, ""},
		{"find-links is refused", "-f /srv", true, ""},
		{"an option after a requirement is refused", "six --index-url https://example.org", true, ""},
		{"a variable is refused", "six @ https://example.org/${UV_INDEX_URL}/x.whl", true, ""},
		{"a control character is refused", "six\x00", true, ""},
		{"words are refused", "six please", true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			lines, err := Normalise(c.line, Options{AllowBuilds: c.builds})
			switch got := strings.Join(lines, "\n"); {
			case c.want == "" && err == nil:
				t.Errorf("accepted as %q", got)
			case c.want != "" && (err != nil || got != c.want):
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestARequirementsTextIsBounded(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"bytes":   strings.Repeat("#", maxRequirementsBytes+1),
		"lines":   strings.Repeat("a\n", 1) + manyRequirements(maxRequirements+1),
		"garbage": "\xff\xfe",
	} {
		if _, err := Normalise(text, Options{}); err == nil {
			t.Errorf("too many %s were accepted", name)
		}
	}
}

func TestTheLargestRequirementsTextIsAccepted(t *testing.T) {
	t.Parallel()
	if lines, err := Normalise(manyRequirements(maxRequirements), Options{}); err != nil || len(lines) != 50 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	if _, err := Normalise(strings.Repeat("#", maxRequirementsBytes), Options{}); err != nil {
		t.Error(err)
	}
}

func manyRequirements(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("p" + strings.Repeat("x", i%50) + "\n")
	}
	return b.String()
}

// TestWhatHasNoNormalFormIsRefused: the key of an environment is made of normal forms.
func TestWhatHasNoNormalFormIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0;#", "six;#x", "six ;\u00a0# no marker", "six>=1;\u2003#", "six\\", "six ; python_version > '3'\\", "six;a\\\r\\"} {
		if lines, err := Normalise(text, Options{}); err == nil {
			t.Errorf("%q: %q", text, lines)
		}
	}
}

func TestARefusalDoesNotRepeatCredentials(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"pkg @ http://user:secret@host/x.whl", "https://user:secret@host/x.whl", "pkg @ git+https://secret@host/x", "--index-url https://user:secret@host/simple"} {
		if _, err := Normalise(text, Options{Setting: "backends.uv.allow_builds"}); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "host") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzNormalise(f *testing.F) {
	f.Add("six\nrequests[a,b]>=1 --hash=sha256:00")
	f.Add("a @ https://x/y.whl ; python_version<'3'\\\n")
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := Normalise(text, Options{})
		if err != nil {
			return
		}
		again, err := Normalise(strings.Join(lines, "\n"), Options{})
		if err != nil || strings.Join(again, "\n") != strings.Join(lines, "\n") {
			t.Errorf("normal form %q became %q, %v", lines, again, err)
		}
		for _, line := range lines {
			if strings.HasPrefix(line, "-") || strings.HasPrefix(line, "/") || strings.HasPrefix(line, ".") {
				t.Errorf("line %q reaches the host", line)
			}
		}
	})
}
