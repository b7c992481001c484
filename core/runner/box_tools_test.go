//go:build linux

package runner

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// installedTools are programs of packages that read their data below /etc, /var and /sys, and what they are asked. Each does the same in a
// box as outside of it. One that is not installed is left out.
var installedTools = []struct{ program, script string }{
	{"awk", "awk 'BEGIN {print toupper(\"a\")}'"}, // most are links to /etc/alternatives
	{"editor", "test -e $(readlink -f $(command -v editor)) && echo there"},
	{"java", "java -Xshare:off -XshowSettings:properties -version 2>&1 | grep 'java.version '"},
	{"javac", "javac -version"},
	{"jar", "cd $TMPDIR && echo x > x && jar cf x.jar x && jar tf x.jar | tail -n 1"},
	{"keytool", "keytool -list -cacerts -storepass changeit | grep -c trustedCertEntry"},
	{"mvn", "mvn -B -v | grep 'Apache Maven'"},
	{"fc-list", "fc-list | sort"},
	{"fc-match", "fc-match monospace"},
	{"convert", "convert -size 2x2 xc:red txt:-"},
	{"Rscript", "Rscript -e 'cat(capabilities(\"jpeg\"), getOption(\"repos\"))'"},
	{"openssl", "openssl version -d; openssl verify $(ls /etc/ssl/certs/*.pem | grep -v snakeoil | head -n 1) | sed 's/.*: //'"},
	{"curl", "curl --version | head -n 1; curl -s https://127.0.0.1:1/; echo $?"},
	{"locale", "locale -a"},
	{"date", "TZ=Europe/Berlin date -d @0; date -d @0"},
	{"perl", "perl -MPOSIX -MFile::Temp -e 'print strftime(\"%Z\", localtime 0), \"\\n\"'"},
	{"python3", "python3 -c 'import ssl, locale, mimetypes, zoneinfo; print(len(ssl.create_default_context().get_ca_certs()) > 0, mimetypes.guess_type(\"a.pdf\"))'"},
	{"node", "node -p 'new Intl.DateTimeFormat(\"de\", {timeZone: \"Asia/Tokyo\"}).format(0)'"},
	{"file", "file -b --mime-type /bin/sh"},
	{"git", "git init -q $TMPDIR/r && git -C $TMPDIR/r status --short --branch"},
	{"gcc", "cd $TMPDIR && echo 'int main() {return 0;}' > a.c && gcc a.c -o a && ./a && echo compiled"},
	{"groff", "echo x | groff -Tascii | head -n 1"},
	{"infocmp", "infocmp -1 xterm | head -n 3"},
	{"lscpu", "lscpu --parse=cpu,core"},
	{"nproc", "nproc; nproc --all"},
	{"getconf", "getconf _NPROCESSORS_CONF; getconf _NPROCESSORS_ONLN"},
	{"xmllint", "echo '<a/>' | xmllint --nonet -"},
	{"gs", "gs -q -dNODISPLAY -dBATCH -c '(x) = quit'"},
	{"pdflatex", "cd $TMPDIR && echo '\\\\documentclass{article}\\\\begin{document}x\\\\end{document}' > a.tex && pdflatex -interaction=batchmode a.tex > /dev/null && echo typeset"},
	{"dot", "echo 'digraph {a -> b}' | dot -Tplain"},
	{"tesseract", "tesseract --list-langs"},
	{"gnuplot", "gnuplot -e 'print 1+1'"},
	{"soffice", "soffice --version"},
	{"psql", "psql --version"},
	{"ruby", "ruby -ropenssl -e 'puts 1'"},
	{"php", "php -r 'echo 1;'"},
}

// environmentOfTools is what both see.
func environmentOfTools(home, temp string) map[string]string {
	return map[string]string{"HOME": home, "TMPDIR": temp, "LC_ALL": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}
}

func TestInstalledToolsWorkInABoxAsOutside(t *testing.T) {
	r := boxed(t, nil)
	tried := 0
	for _, tool := range installedTools {
		if path, err := exec.LookPath(tool.program); err != nil || !strings.HasPrefix(path, "/usr/bin/") && !strings.HasPrefix(path, "/bin/") {
			continue
		}
		tried++
		script := "set -o pipefail 2>/dev/null; exec 2>&1; " + tool.script
		outside := exec.Command("/bin/bash", "-c", script) //nolint:gosec // of the table
		outside.Dir = t.TempDir()
		for k, v := range environmentOfTools(outside.Dir, outside.Dir) {
			outside.Env = append(outside.Env, k+"="+v)
		}
		want, err := outside.CombinedOutput()
		if err != nil {
			t.Logf("%s does not work outside: %v\n%s", tool.program, err, want)
			continue
		}
		start := Start{
			ExecutionID: "exe_test", Command: []string{"/bin/bash", "-c", script}, Path: "/usr/local/bin:/usr/bin:/bin", Limits: limits(),
			Env: environmentOfTools("/work", "/tmp"),
		}
		start.Limits.Timeout, start.Limits.MemoryBytes = awaittest.Forever, 2<<30 // a JVM and its files
		res, rec := r.run(t, start, RunInput{})
		if got := rec.stdout() + rec.stderr(); got != string(want) || describe(res) != "succeeded exit 0" {
			t.Errorf("%s in a box: %s\n%s\noutside\n%s", tool.program, describe(res), got, want)
		}
	}
	if _, err := os.Stat("/usr/bin/python3"); err == nil && tried < 5 {
		t.Errorf("only %d tools were tried", tried)
	}
}

// TestNothingThatABoxHasOfTheMachineNamesIt reads all that is below /etc and /sys in a box.
func TestNothingThatABoxHasOfTheMachineNamesIt(t *testing.T) {
	name, err := os.Hostname()
	must(t, err)
	if len(name) < 6 || name == "localhost" {
		name = "not this one" // the name of such a machine is a usual word
	}
	start := python(`
import os, sys
for top in ("/etc", "/sys"):
    for folder, _, files in os.walk(top):
        for f in files:
            try:
                path = os.path.join(folder, f)
                if os.path.isfile(path) and sys.argv[1].encode() in open(path, "rb").read(1 << 22): print(path)
            except OSError: pass
print("done")
`)
	start.Args = []string{name}
	boxed(t, nil).prints(t, start, "done")
}
