package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/credential"
)

// Requests for a feed that another member of the fleet runs are forwarded to it. The address of its admin
// server comes from the bus, to which others may write. So the address is not believed, and the token is
// never sent:
//
//   - All members have the same admin.token. The key of seals (HMAC-SHA256) is derived from it.
//   - A published address has a seal over the name of the member and the address. No request is made to an
//     address without it. So whoever can write to the bus, and does not have the token, cannot make a member
//     send requests anywhere.
//   - A request has a seal over its method, path, sender, recipient, time and a random number. The recipient
//     accepts it once and within a minute, for the feeds' details, polls, pauses and their ends only. So a
//     listener at an old address, or on the way, learns no secret and can repeat nothing.
//   - An answer has a seal over the seal of the request, its status and its body. Without it nothing of the
//     answer is shown, so a wrong server can neither invent a state nor use this one to read another.
//
// The contents are not encrypted, like those of the admin server itself. The key is derived slowly because a
// seal on the bus allows to try tokens offline; a token as the documents recommend cannot be found like that.
//
// A forwarded request is never forwarded again. Redirects and proxies are not followed.
const (
	// forwardScheme is the scheme of the Authorization header of a forwarded request. Its parameters are the
	// sender, the recipient, the Unix time, a random number and the seal.
	forwardScheme = "Feedbridge-Fleet"
	// sealHeader has the seal of an answer.
	sealHeader = "Feedbridge-Seal"
	// forwardSkew is how far the clocks of two members may differ.
	forwardSkew = time.Minute
	// largestAnswer limits an answer, in bytes.
	largestAnswer = 1 << 20
	// detailsTimeout limits the time for the details of a feed.
	detailsTimeout = 3 * time.Second
	// keyIterations take some 20 ms.
	keyIterations = 100_000
)

// forwarder makes and accepts forwarded requests.
type forwarder struct {
	fleet  *Fleet
	token  func() (credential.Secret, error) // nil without one
	client http.Client

	mu sync.Mutex // guards the fields below
	// key is that of the token last.
	key  []byte
	last credential.Secret
	// used are the seals of the requests that were accepted, with their times.
	used map[string]time.Time
}

func newForwarder(f *Fleet, token func() (credential.Secret, error)) *forwarder {
	if f == nil {
		return nil
	}
	return &forwarder{
		fleet: f, token: token, used: map[string]time.Time{},
		client: http.Client{
			Transport: &http.Transport{
				DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
				// The admin server disconnects idle clients, and a forwarded request is rare.
				DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// sealKey returns the key of seals; nil without a token.
func (f *forwarder) sealKey() ([]byte, error) {
	if f.token == nil {
		return nil, nil
	}
	token, err := f.token()
	if err != nil || token == "" {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if token != f.last {
		key, err := pbkdf2.Key(sha256.New, token.Reveal(), []byte("feedbridge fleet "+f.fleet.known.fleet), keyIterations, sha256.Size)
		if err != nil {
			return nil, err
		}
		f.key, f.last = key, token
	}
	return f.key, nil
}

// seal returns the seal over some texts.
func seal(key []byte, texts ...string) string {
	h := hmac.New(sha256.New, key)
	for _, text := range texts {
		fmt.Fprintf(h, "%d:%s,", len(text), text)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func sameSeal(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }

func addressSeal(key []byte, member, address string) string {
	return seal(key, "address", member, address)
}

// forwardedKey is the key of the name of the member that has forwarded a request, in its context.
type forwardedKey struct{}

// IsForwarded reports whether another member of the fleet has forwarded the request with a context. It must
// not be forwarded again.
func IsForwarded(ctx context.Context) bool { return ctx.Value(forwardedKey{}) != nil }

// sendWithin sends a request, and waits for the limit at most. Its error says how long it has waited.
func (f *forwarder) sendWithin(ctx context.Context, limit time.Duration, owner, method, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := f.send(ctx, owner, method, path, answer)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s, another member of the fleet, does not answer within %v%s", owner, limit, f.whenGone(owner))
	}
	return err
}

func (f *forwarder) send(ctx context.Context, owner, method, path string, answer any) error {
	address, key, err := f.findMember(owner)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("the admin server of %s has no usable address: %w", owner, err)
	}
	self, at, number := f.fleet.self, strconv.FormatInt(time.Now().Unix(), 10), rand.Text()
	mine := seal(key, "request", method, req.URL.EscapedPath(), self, owner, at, number)
	req.Host = "feedbridge.internal" // a name that every admin server accepts
	req.Header.Set("Authorization", strings.Join([]string{forwardScheme, self, owner, at, number, mine}, " "))
	resp, err := f.client.Do(req)
	if err != nil {
		return f.unreachable(owner, address, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, largestAnswer+1))
	switch {
	case err != nil:
		return f.unreachable(owner, address, err)
	case len(body) > largestAnswer:
		return fmt.Errorf("the answer of %s at %s is larger than %d bytes", owner, address, largestAnswer)
	case !sameSeal(resp.Header.Get(sealHeader), answerSeal(key, mine, resp.StatusCode, body)):
		text := fmt.Sprintf("the answer at %s (status %d) is not from %s", address, resp.StatusCode, owner)
		if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil && time.Since(date).Abs() > forwardSkew {
			return fmt.Errorf("%s; its clock and that of this copy differ by %v: set them", text, time.Since(date).Round(time.Second).Abs())
		}
		return fmt.Errorf("%s, or it has another admin.token; set the same one on all members, and fleet.advertise to where each can be reached", text)
	case resp.StatusCode != http.StatusOK:
		var failed changeErrors
		failure := &ChangeError{Status: resp.StatusCode}
		if json.Unmarshal(body, &failed) != nil || len(failed.Errors) == 0 {
			failed.Errors = []string{fmt.Sprintf("%s answers %s: %s", owner, resp.Status, bytes.TrimSpace(body[:min(len(body), longestError)]))}
		}
		for _, text := range failed.Errors {
			failure.Errs = append(failure.Errs, errors.New(text))
		}
		return failure
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("the answer of %s is not what this version understands: %w", owner, err)
	}
	return nil
}

// findMember returns the address of a member's admin server, once its seal is checked, and the key of seals.
func (f *forwarder) findMember(owner string) (address string, key []byte, err error) {
	if f == nil {
		return "", nil, errors.New("there is no fleet")
	}
	note := f.fleet.readNotes()[owner]
	if note == nil || note.Admin == "" {
		return "", nil, fmt.Errorf("requests cannot be forwarded to %s: it publishes no address of its admin server; set admin.listen there, or fleet.advertise if others reach it elsewhere", owner)
	}
	key, err = f.sealKey()
	switch {
	case err != nil:
		return "", nil, err
	case key == nil || !sameSeal(note.Seal, addressSeal(key, owner, note.Admin)):
		return "", nil, fmt.Errorf("requests cannot be forwarded to %s: it and this copy have no admin.token in common; set the same one on all members", owner)
	}
	return note.Admin, key, nil
}

// whenGone returns what becomes of the feeds of a member that does not answer.
func (f *forwarder) whenGone(owner string) string {
	if note := f.fleet.readNotes()[owner]; note != nil && !note.goneSince.IsZero() {
		return fmt.Sprintf("; it is gone since %s, and others take over its feeds: try again then", status.FormatDuration(time.Since(note.goneSince)))
	}
	return "; if it is gone or frozen, others take over its feeds within 20 seconds: try again then"
}

func (f *forwarder) unreachable(owner, address string, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) || os.IsTimeout(err) {
		return fmt.Errorf("%s, another member of the fleet, does not answer at %s: %w%s; otherwise set fleet.advertise there to where the members reach it", owner, address, err, f.whenGone(owner))
	}
	return fmt.Errorf("%s, another member of the fleet, cannot be reached at %s: %w; set fleet.advertise there to where the members reach it", owner, address, err)
}

func answerSeal(key []byte, request string, status int, body []byte) string {
	return seal(key, "answer", request, strconv.Itoa(status), string(body))
}

// accept serves requests that members forward with trusted, which requires no token, and seals the answers.
// It passes all others on to next.
func (f *forwarder) accept(trusted, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := strings.CutPrefix(r.Header.Get("Authorization"), forwardScheme+" ")
		if !ok || f == nil {
			next.ServeHTTP(w, r)
			return
		}
		from, mine, key, err := f.authorize(r, strings.Split(text, " "))
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), forwardedKey{}, from))
		answer := &bufferedAnswer{ResponseWriter: w}
		trusted.ServeHTTP(answer, r)
		status := cmp.Or(answer.status, http.StatusOK)
		w.Header().Set(sealHeader, answerSeal(key, mine, status, answer.body.Bytes()))
		w.WriteHeader(status)
		_, _ = w.Write(answer.body.Bytes())
	})
}

// authorize returns the sender of a forwarded request, its seal, and the key of the answer's seal.
func (f *forwarder) authorize(r *http.Request, parts []string) (from, mine string, key []byte, err error) {
	refused := errors.New("not a request of a member of this fleet; set the same admin.token on all members")
	details := r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/status/")
	change := r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/feeds/")
	if len(parts) != 5 || !details && !change || r.ContentLength != 0 {
		return "", "", nil, refused
	}
	from, to, at, number, mine := parts[0], parts[1], parts[2], parts[3], parts[4]
	key, err = f.sealKey()
	if err != nil || key == nil || !sameSeal(mine, seal(key, "request", r.Method, r.URL.EscapedPath(), from, to, at, number)) {
		return "", "", nil, refused
	}
	sent, err := strconv.ParseInt(at, 10, 64)
	now := time.Now()
	switch {
	case err != nil || to != f.fleet.self:
		return "", "", nil, fmt.Errorf("this copy is %s; set fleet.advertise of each member to where the others reach it", f.fleet.self)
	case now.Sub(time.Unix(sent, 0)).Abs() > forwardSkew:
		return "", "", nil, errors.New("the clocks of the members differ by more than a minute")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for other, at := range f.used {
		if now.Sub(at) > 2*forwardSkew {
			delete(f.used, other)
		}
	}
	if _, again := f.used[mine]; again {
		return "", "", nil, refused
	}
	f.used[mine] = now
	return from, mine, key, nil
}

// bufferedAnswer keeps an answer until it is sealed.
type bufferedAnswer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (b *bufferedAnswer) WriteHeader(status int)         { b.status = cmp.Or(b.status, status) }
func (b *bufferedAnswer) Write(text []byte) (int, error) { return b.body.Write(text) }
func (b *bufferedAnswer) Unwrap() http.ResponseWriter    { return b.ResponseWriter }
