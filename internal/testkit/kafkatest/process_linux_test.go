package kafkatest

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A test that locks its thread, and does not unlock it, ends the thread with
// itself.
func TestChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	var child *process
	var err error
	thread := onThread(func() { child, err = start(cmd) })
	if err != nil {
		t.Fatal(err)
	}
	for exists(fmt.Sprintf("/proc/self/task/%d", thread)) {
		time.Sleep(time.Millisecond)
	}
	if err := child.terminate(time.Minute); err != nil {
		t.Error(err)
	}
	if got, want := fmt.Sprint(child.err), "signal: terminated"; got != want {
		t.Errorf("the child ended by %q, want %q", got, want)
	}
}

// onThread calls f on a thread that ends afterwards, and returns its ID.
func onThread(f func()) (thread int) {
	var on sync.WaitGroup
	on.Go(func() {
		runtime.LockOSThread()
		if thread = syscall.Gettid(); thread == syscall.Getpid() {
			// The process's first thread never ends. While it is held here the other
			// goroutine is on another one.
			thread = onThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	})
	on.Wait()
	return thread
}
