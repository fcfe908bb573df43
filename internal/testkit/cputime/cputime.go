// Package cputime tests that a parser takes a time that grows with its input.
package cputime

import (
	"flag"
	"hash/crc32"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/mutation"
)

const (
	size    = 128 << 10 // of the repeated input
	perByte = 15 * time.Microsecond
)

// CheckRepeated calls read with the text again and again, 128 KiB in all, and fails the test if it takes
// more than 2 s of CPU: twenty times what a slow parser takes, and less than one takes that does some work for
// each pair of bytes. A parser that searches the same bytes again and again is too quick to fail at this size;
// that takes [CheckTime] with more bytes.
func CheckRepeated(t testing.TB, text string, read func(text string)) {
	t.Helper()
	if text == "" || len(text) > size || !Sampled(t, text) {
		return
	}
	long := strings.Repeat(text, size/len(text))
	CheckTime(t, text, size*perByte, func() { read(long) })
}

// CheckTime fails the test if do takes more than some time of CPU. The time is that of the thread, which other
// processes do not prolong by more than they slow a processor down. Systems that do not count it are not
// checked.
func CheckTime(t testing.TB, what string, most time.Duration, do func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	do()
	if took := threadTime() - before; took > most {
		t.Fatalf("%q took %v of CPU", what, took)
	}
}

// Sampled reports whether the time for an input is tested: that of each seed, and that of one in 32 while
// fuzzing, which would otherwise try only a few inputs in a second, and of mutations.
func Sampled(t testing.TB, text string) bool {
	worker := flag.Lookup("test.fuzzworker")
	return !mutation.Made(t) && (worker == nil || worker.Value.String() != "true") || crc32.ChecksumIEEE([]byte(text))%32 == 0
}
