package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// ledgerPath is the file in which long runs write what they have shown. It is committed, and no input of a part.
const ledgerPath = "tools/gate/ledger.txt"

// entry is a line of the ledger.
type entry struct {
	part, key, commit string
	seconds           int
	result            string
	load              string
}

func (e entry) String() string {
	return fmt.Sprintf("%s %s %s %d %s %s", e.part, e.key, e.commit, e.seconds, e.result, e.load)
}

// readLedger returns the last result of each part and key.
func readLedger(root string) (map[[2]string]entry, error) {
	last := map[[2]string]entry{}
	file, err := os.Open(filepath.Join(root, ledgerPath))
	if errors.Is(err, os.ErrNotExist) {
		return last, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		if lines.Text() == "" || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var e entry
		if _, err := fmt.Sscan(lines.Text(), &e.part, &e.key, &e.commit, &e.seconds, &e.result, &e.load); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", ledgerPath, number, err)
		}
		last[[2]string{e.part, e.key}] = e
	}
	return last, lines.Err()
}

// machine is what decides about a result beside the files: the version of Go and the kernel.
func machine() []string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return []string{runtime.Version(), runtime.GOARCH, strings.TrimSpace(string(kernel))}
}

// dueParts returns the long parts that have not passed with their inputs as they are, and the keys of all parts.
func dueParts(root string, parts []Part) (due []string, keys map[string]string, err error) {
	t, err := readTree(root)
	if err != nil {
		return nil, nil, err
	}
	if keys, err = t.keys(parts, machine()...); err != nil {
		return nil, nil, err
	}
	ledger, err := readLedger(root)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range parts {
		if p.Tier == Long && (keys[p.Name] == "" || ledger[[2]string{p.Name, keys[p.Name]}].result != string(Passed)) {
			due = append(due, p.Name)
		}
	}
	return due, keys, nil
}

// record appends the results of long parts to the ledger. What has no key ran on files that no commit has, and is not recorded.
// before holds the keys at the start of the run: a part whose inputs have changed since is not recorded either.
func record(root string, parts []Part, results []Result, before map[string]string) error {
	_, keys, err := dueParts(root, parts)
	if err != nil {
		return err
	}
	commit, err := output(root, "git", "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		load = []byte("?")
	}
	file, err := os.OpenFile(filepath.Join(root, ledgerPath), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for _, result := range results {
		p := result.Part
		switch {
		case p.Tier != Long:
		case keys[p.Name] == "" || keys[p.Name] != before[p.Name]:
			fmt.Printf("%s is not recorded: its inputs are not those of the commit\n", p.Name)
		default:
			_, err := fmt.Fprintln(file, entry{p.Name, keys[p.Name], strings.TrimSpace(commit), int(result.Time.Seconds()), string(result.Status), strings.Fields(string(load))[0]})
			if err != nil {
				file.Close()
				return err
			}
		}
	}
	return file.Close()
}
