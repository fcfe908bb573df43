package main

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// The program sets the limit unless the environment has one.
func TestMemoryLimitIsSet(t *testing.T) {
	t.Parallel()
	of := func(env ...string) string {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), append(env, testMainRole+"=memory-limit")...)
		out, err := cmd.Output()
		must.Succeed(t, err)
		return strings.TrimSpace(string(out))
	}
	const none = "9223372036854775807"
	if runtime.GOOS == "linux" && of() == none {
		t.Error("there is no limit")
	}
	if got := of("GOMEMLIMIT=123MiB"); got != "128974848" {
		t.Errorf("the limit of the environment became %s", got)
	}
}
