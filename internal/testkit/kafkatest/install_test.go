package kafkatest

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestWhatIsMissingIsNamed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands in this test are shell scripts")
	}
	for _, test := range []struct {
		name     string
		commands map[string]string // their scripts
		want     string
		missing  bool
	}{
		{"no java", nil, "no java on the PATH", true},
		{"a java that only says where to get one", map[string]string{"java": "exit 1"}, "does not run", true},
		{"an old java", map[string]string{"java": `echo 'openjdk version "11.0.2"' >&2`}, "Java 17 or newer", true},
		{"no mvn", map[string]string{"java": `echo 'openjdk version "21"' >&2`}, "no mvn on the PATH", true},
		{
			"no network",
			map[string]string{"java": `echo 'openjdk version "21"' >&2`, "mvn": "echo no route to host; exit 1"},
			"no route to host", false,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := t.TempDir()
			for command, script := range test.commands {
				if err := os.WriteFile(filepath.Join(path, command), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", path)
			t.Setenv("KAFKATEST_DIR", t.TempDir())
			_, err := install(t.Context(), version)
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, errMissing) != test.missing {
				t.Errorf("%v, want %q in it, and errMissing: %t", err, test.want, test.missing)
			}
		})
	}
}

// verdict is a testing.TB that records whether the test was skipped or failed.
type verdict struct {
	testing.TB
	said string
}

func (v *verdict) Helper()      {}
func (v *verdict) Skip(...any)  { v.said = "skip"; runtime.Goexit() }
func (v *verdict) Fatal(...any) { v.said = "fatal"; runtime.Goexit() }

func TestSkippedUnlessRequired(t *testing.T) {
	defer func(r bool) { required = r }(required)
	for _, test := range []struct {
		err      error
		required bool
		want     string
	}{
		{errMissing, false, "skip"},
		{errMissing, true, "fatal"},
		{errors.New("another"), false, "fatal"},
	} {
		v, ended := &verdict{TB: t}, make(chan struct{})
		required = test.required
		go func() {
			defer close(ended)
			giveUp(v, test.err)
		}()
		if <-ended; v.said != test.want {
			t.Errorf("%v, required: %t: %s, want %s", test.err, test.required, v.said, test.want)
		}
	}
}
