package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/statuspage"
	"github.com/feedbridge/feedbridge/internal/credential"
)

const (
	// changeTimeout bounds a change. A reload waits for commits in flight.
	changeTimeout = 5 * time.Minute
	// changeBody is the largest body of a request for a change, in bytes.
	changeBody = 64 << 10
)

// A Change carries out a POST request and returns the answer, which is encoded as JSON. The
// request was authorized. The context does not end when the client leaves, so that no change
// is left half done; it ends after 5m. A [*ChangeError] sets the status of the answer; any
// other error is answered with 500.
type Change func(ctx context.Context, r *http.Request) (answer any, err error)

// serveChange answers a request for a change.
func (h *handler) serveChange(w http.ResponseWriter, r *http.Request, change Change) {
	readable := r.Method != http.MethodPost && h.opts.Token == nil && statuspage.IsLocal(r)
	if !h.trusted && !readable && !h.authorize(w, r) {
		return
	}
	// The server's timeouts are for requests that are answered at once.
	deadlines := http.NewResponseController(w)
	_ = deadlines.SetReadDeadline(time.Time{})
	_ = deadlines.SetWriteDeadline(time.Time{})
	r.Body = http.MaxBytesReader(w, r.Body, changeBody)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), changeTimeout)
	defer cancel()
	answer, err := change(ctx, r)
	if err == nil {
		h.writeJSON(w, http.StatusOK, answer)
		return
	}
	failed, ok := errors.AsType[*ChangeError](err)
	if !ok {
		failed = &ChangeError{http.StatusInternalServerError, []error{err}}
	}
	texts := make([]string, len(failed.Errs))
	for i, err := range failed.Errs {
		texts[i] = err.Error()
	}
	h.writeJSON(w, failed.Status, changeErrors{texts})
}

// authorize reports whether the request has the token, and answers it if not.
func (h *handler) authorize(w http.ResponseWriter, r *http.Request) bool {
	if h.opts.Token == nil {
		if r.Method != http.MethodPost {
			http.Error(w, "messages are shown only to those who may make changes; use the socket of the daemon, or set admin.token", http.StatusForbidden)
			return false
		}
		http.Error(w, "changes are disabled at this address; use the socket of the daemon, or set admin.token", http.StatusForbidden)
		return false
	}
	token, err := h.opts.Token()
	if err != nil {
		h.opts.Log.Error("cannot read the token for changes", "error", err)
		http.Error(w, "the token for changes cannot be read; the log has the reason", http.StatusServiceUnavailable)
		return false
	}
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !sameSecret(token, credential.Secret(given)) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="feedbridge"`)
		http.Error(w, "wrong or missing token; a change needs the header Authorization: Bearer with admin.token", http.StatusUnauthorized)
		return false
	}
	return true
}

// sameSecret compares in a time that depends neither on the secrets' content nor on their
// length. An empty secret equals none.
func sameSecret(a, b credential.Secret) bool {
	x, y := sha256.Sum256([]byte(a.Reveal())), sha256.Sum256([]byte(b.Reveal()))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1 && a != ""
}
