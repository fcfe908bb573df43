// Package httpfault serves HTTP with faults, for tests of clients.
package httpfault

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"
)

// Faults is a handler that spoils chosen answers of another one, for tests.
// The zero Faults with a Handler passes everything through.
type Faults struct {
	Handler http.Handler

	mu    sync.Mutex
	queue []planned
}

type planned struct {
	method, path string
	fault        Fault
}

// A Fault answers one request in place of next, or with the help of it.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Add queues faults, each for one request with that method and path. An empty method or
// path matches any. A request takes the first fault in the queue that matches it.
func (f *Faults) Add(method, path string, faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range faults {
		f.queue = append(f.queue, planned{method, path, fault})
	}
}

// Left is the number of faults that no request has met yet.
func (f *Faults) Left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.queue)
}

func (f *Faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if fault := f.take(r); fault != nil {
		fault(w, r, f.Handler)
		return
	}
	f.Handler.ServeHTTP(w, r)
}

func (f *Faults) take(r *http.Request) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, p := range f.queue {
		if (p.method == "" || p.method == r.Method) && (p.path == "" || p.path == r.URL.Path) {
			f.queue = append(f.queue[:i:i], f.queue[i+1:]...)
			return p.fault
		}
	}
	return nil
}

// Pass spoils nothing: it lets one request through that a later fault in the
// queue would be for.
func Pass(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) }

// Reset closes the connection without an answer.
func Reset(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// Hang answers nothing until the client has left.
func Hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }

// Status answers with a status and headers, given as names and values in turn.
func Status(status int, headers ...string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Add(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
	}
}

// Cut breaks the connection after n bytes of the body. The header promises all
// of it.
func Cut(n int) Fault {
	return spoil(func(w http.ResponseWriter, _ *http.Request, a *answer) {
		a.send(w, n)
		panic(http.ErrAbortHandler)
	})
}

// Stall sends n bytes of the body, and no more until the client has left.
func Stall(n int) Fault {
	return spoil(func(w http.ResponseWriter, r *http.Request, a *answer) {
		a.send(w, n)
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	})
}

// Length makes Content-Length n. A body that is longer is cut there, without
// any other sign; after one that is shorter net/http breaks the connection.
func Length(n int) Fault {
	return spoil(func(w http.ResponseWriter, _ *http.Request, a *answer) {
		a.header.Set("Content-Length", strconv.Itoa(n))
		a.send(w, n)
	})
}

// Edit changes the body and the headers. It is given the body, and returns
// what to send in its place, with the right Content-Length.
func Edit(edit func(h http.Header, body []byte) []byte) Fault {
	return spoil(func(w http.ResponseWriter, r *http.Request, a *answer) {
		body := edit(a.header, a.body.Bytes())
		a.header.Set("Content-Length", strconv.Itoa(len(body)))
		a.body = *bytes.NewBuffer(body)
		a.send(w, len(body))
	})
}

// answer is a handler's answer, held back.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func spoil(fault func(http.ResponseWriter, *http.Request, *answer)) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		a := &answer{header: make(http.Header), status: http.StatusOK}
		next.ServeHTTP(a, r)
		fault(w, r, a)
	}
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// send sends the header and n bytes of the body, or all if it has fewer. A
// client that has left notices nothing, so errors do not matter.
func (a *answer) send(w http.ResponseWriter, n int) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()[:min(n, a.body.Len())])
	_ = http.NewResponseController(w).Flush()
}
