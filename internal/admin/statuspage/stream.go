package statuspage

import (
	"bytes"
	"context"
	"html/template"
	"net/http"
	"time"
)

// heartbeat is the longest time without an event on the stream of a live page, so that a client
// that is gone is noticed, proxies do not end the stream, and the page notices that the process is gone.
const heartbeat = 15 * time.Second

// slowest is the longest time between two updates that is chosen because updates are costly.
const slowest = 10 * time.Second

// share is the least ratio of the time between two updates of a live page to the time that it
// takes to make one. Live pages are rendered one after the other, so all of them together
// take no more than a core, and each no more than 1/share of it.
const share = 20

// stream sends the content of a page as server-sent events: at once, and again when it has
// changed. It ends when the client is gone or reads nothing for Patience, and on Close.
func (p *Pages) stream(w http.ResponseWriter, r *http.Request, t *template.Template, get content) {
	open := p.streams.TryAcquire()
	if open == nil {
		w.Header().Set("Retry-After", "15")
		http.Error(w, "too many live pages are open; reload this one for its present content", http.StatusServiceUnavailable)
		return
	}
	defer open.Release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := context.AfterFunc(p.closing, cancel)
	defer stop()
	r = r.WithContext(ctx)

	conn := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	extend := func() { _ = conn.SetWriteDeadline(time.Now().Add(p.opts.Patience)) }
	defer extend() // for the end of the answer
	send := func(event []byte) bool {
		extend()
		_, err := w.Write(event)
		return err == nil && conn.Flush() == nil
	}

	var last []byte
	var sent time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		slot, err := p.renders.Acquire(ctx)
		if err != nil {
			return
		}
		begin := time.Now()
		body, _, err := p.execute(r, t, "main", get)
		took := time.Since(begin)
		slot.Release()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.opts.Log.Error("cannot make the status page", "error", err)
			return
		case !bytes.Equal(body, last):
			if !send(event(body)) {
				return
			}
			last, sent = body, time.Now()
		case time.Since(sent) >= heartbeat:
			if !send([]byte("event: alive\ndata:\n\n")) {
				return
			}
			sent = time.Now()
		}
		timer.Reset(max(p.opts.Every, min(share*took, slowest)))
	}
}

// event returns an event whose data is body. A client that loses the connection comes back
// after three seconds. A carriage return, which would end a line of the event, becomes a blank.
func event(body []byte) []byte {
	b := []byte("retry: 3000\n")
	for line := range bytes.Lines(bytes.ReplaceAll(body, []byte("\r"), []byte(" "))) {
		b = append(b, "data: "...)
		b = append(b, bytes.TrimSuffix(line, []byte("\n"))...)
		b = append(b, '\n')
	}
	return append(b, '\n')
}
