package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/checkpoint"
	"github.com/feedbridge/feedbridge/internal/admin"
	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/internal/fleet"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// member is a copy of the fleet shop in which b runs all feeds.
type member struct {
	*admin.Server
	name string
	seen map[string]fleet.Seen // shared by all members
	fed  *admin.Feed
	http *httptest.Server
}

const rightToken = "correct-horse-battery"

// publish makes the note of the member known to the others.
func (m *member) publish() { m.seen[m.name] = fleet.Seen{Note: m.Note(2).Text, At: time.Now()} }

func newMember(t *testing.T, seen map[string]fleet.Seen, name, owner, token string) *member {
	t.Helper()
	shop := admin.NewFleet("shop", "main")
	m := &member{name: name, seen: seen}
	m.Server = admin.New(admin.Options{Writer: name, Log: slog.New(slog.DiscardHandler), Fleet: shop, Token: func() (credential.Secret, error) { return credential.Secret(token), nil }})
	m.fed = m.AddFeed(admin.FeedOptions{Name: "orders", Topic: "shop.orders", Bus: "main", Every: time.Second, Freshness: time.Hour})
	m.AddChange("/feeds/{feed}/poll", func(ctx context.Context, r *http.Request) (any, error) {
		if !admin.IsForwarded(ctx) {
			return nil, errors.New("not forwarded")
		}
		if r.PathValue("feed") == "gone" {
			return nil, &admin.ChangeError{Status: http.StatusConflict, Errs: []error{errors.New("not mine")}}
		}
		return map[string]string{"feed": r.PathValue("feed")}, nil
	})
	m.AddChange("/reload", func(context.Context, *http.Request) (any, error) { return "reloaded", nil })
	m.http = httptest.NewServer(m.Handler())
	t.Cleanup(m.http.Close)
	shop.Follow(name, func() map[string]fleet.Seen { return seen }, strings.TrimPrefix(m.http.URL, "http://"))
	shop.Assigned(fleet.Assignment{Self: name, Members: []string{"a", "b"}, Owner: func(string) string { return owner }})
	m.publish()
	return m
}

func poll(t *testing.T, m *member, path string) (answer map[string]string, err error) {
	t.Helper()
	err = m.Forward(t.Context(), "b", http.MethodPost, path, time.Second, &answer)
	return answer, err
}

func TestForward(t *testing.T) {
	t.Parallel()
	seen := map[string]fleet.Seen{}
	b := newMember(t, seen, "b", "b", rightToken)
	a := newMember(t, seen, "a", "b", rightToken)
	if answer, err := poll(t, a, "/feeds/orders/poll"); err != nil || answer["feed"] != "orders" {
		t.Errorf("%v %v", answer, err)
	}
	_, err := poll(t, a, "/feeds/gone/poll")
	if failed, ok := errors.AsType[*admin.ChangeError](err); !ok || failed.Status != http.StatusConflict || failed.Error() != "not mine" {
		t.Errorf("an error of the owner: %v", err)
	}
	if _, err := poll(t, a, "/reload"); err == nil || !strings.Contains(err.Error(), "status 401") {
		t.Errorf("a reload must not be forwarded: %v", err)
	}
	enter(b.fed, bridge.Halted, checkpoint.Checkpoint{}, time.Hour, errors.New("broken by <b>"))
	b.publish()
	_, body := get(t, a.Server, "/status/orders")
	var row status.Feed
	if err := json.Unmarshal([]byte(body), &row); err != nil || row.State != "halted" || row.Owner != "b" || len(row.RecentErrors) != 1 {
		t.Errorf("details: %v %s", err, body)
	}
	p, _ := readStatus(t, a.Server)
	if p.Summary.NeedYou != 1 || p.Summary.Troubles[0].Member != "b" || p.Feeds[0].Attention != status.NeedsYou || !strings.HasSuffix(p.Feeds[0].Explanation, ": halted: broken by <b>") {
		t.Errorf("%+v %+v", p.Summary, p.Feeds[0])
	}
}

// Two copies that each believe the other one runs a feed ask each other once.
func TestForwardEndsAfterOneHop(t *testing.T) {
	t.Parallel()
	seen := map[string]fleet.Seen{}
	newMember(t, seen, "b", "a", rightToken)
	a := newMember(t, seen, "a", "b", rightToken)
	_, body := get(t, a.Server, "/status/orders")
	if !strings.Contains(body, "b does not run the feed either; the fleet is dividing its feeds") {
		t.Error(body)
	}
}

// The address of a member comes from the bus. No request is made to one that a member with the token has not
// published, no server learns the token, and nothing is shown of an answer that is not the owner's.
func TestForwardBelievesNoAddress(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	var sent atomic.Value
	wrong := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		sent.Store(fmt.Sprint(r.Header))
		switch {
		case strings.Contains(r.URL.Path, "huge"):
			_, _ = io.WriteString(w, strings.Repeat("x", 2<<20))
		case strings.Contains(r.URL.Path, "slow"):
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(w, `{"feed":"made up"}`)
		}
	}))
	t.Cleanup(wrong.Close)
	address := strings.TrimPrefix(wrong.URL, "http://")
	forge := func(name, text string) fleet.Seen {
		return fleet.Seen{Note: json.RawMessage(text), At: time.Now()}
	}
	for name, test := range map[string]struct{ token, note, want string }{
		"no note":        {rightToken, `{}`, "set admin.listen there"},
		"garbage":        {rightToken, `[1,2]`, "set admin.listen there"},
		"no seal":        {rightToken, fmt.Sprintf(`{"admin":%q}`, address), "no admin.token in common"},
		"made-up seal":   {rightToken, fmt.Sprintf(`{"admin":%q,"seal":"AAAA"}`, address), "no admin.token in common"},
		"no own token":   {"", fmt.Sprintf(`{"admin":%q,"seal":"AAAA"}`, address), "no admin.token in common"},
		"hostile digest": {rightToken, `{"digest":{"feeds":-7,"states":{"x":1},"troubles":[]}}`, "set admin.listen there"},
	} {
		seen := map[string]fleet.Seen{}
		a := newMember(t, seen, "a", "b", test.token)
		seen["b"] = forge("b", test.note)
		if answer, err := poll(t, a, "/feeds/orders/poll"); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v %v, want %q", name, answer, err, test.want)
		}
		if p, _ := readStatus(t, a.Server); p.Summary.Feeds < 0 || !strings.Contains(p.Summary.Sentence, "1 of 2 members do not report theirs") {
			t.Errorf("%s: %s", name, p.Summary.Sentence)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests to an address that no member has published", n)
	}

	// A program that now has the address of a member which is gone.
	seen := map[string]fleet.Seen{}
	b := newMember(t, seen, "b", "b", rightToken)
	b.http.Close()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", b.http.Listener.Addr().String())
	if err != nil {
		t.Skip("another process has taken the port of the closed server:", err)
	}
	squatter := &httptest.Server{Listener: listener, Config: wrong.Config}
	squatter.Start()
	t.Cleanup(squatter.Close)
	a := newMember(t, seen, "a", "b", rightToken)
	for path, want := range map[string]string{"/feeds/orders/poll": "is not from b", "/feeds/huge/poll": "larger than", "/feeds/slow/poll": "does not answer within 1s"} {
		answer, err := poll(t, a, path)
		if err == nil || !strings.Contains(err.Error(), want) || answer != nil || strings.Contains(err.Error(), "made up") {
			t.Errorf("%s: %v %v, want %q", path, answer, err, want)
		}
	}
	if text, _ := sent.Load().(string); text == "" || strings.Contains(text, rightToken) {
		t.Errorf("sent: %s", text)
	}
}

// A forwarded request that somebody has seen is of no use to others: not a second time, not later, not for another
// path, not at another member. One with a good seal changes only what may be forwarded.
func TestForwardedRequestsCannotBeRepeated(t *testing.T) {
	t.Parallel()
	seen := map[string]fleet.Seen{}
	b := newMember(t, seen, "b", "b", rightToken)
	c := newMember(t, seen, "c", "b", rightToken)
	now := time.Now()
	for n, test := range []struct {
		name, path string // as sealed
		age        time.Duration
		at         *member
		asked      string // path
		want       int
	}{
		{"first", "/feeds/orders/poll", 0, b, "/feeds/orders/poll", http.StatusOK},
		{"again", "/feeds/orders/poll", 0, b, "/feeds/orders/poll", http.StatusUnauthorized},
		{"another path", "/feeds/parcels/poll", 0, b, "/feeds/orders/poll", http.StatusUnauthorized},
		{"another member", "/feeds/orders/poll", 0, c, "/feeds/orders/poll", http.StatusUnauthorized},
		{"late", "/feeds/orders/poll", 2 * time.Minute, b, "/feeds/orders/poll", http.StatusUnauthorized},
		{"early", "/feeds/orders/poll", -2 * time.Minute, b, "/feeds/orders/poll", http.StatusUnauthorized},
		{"not for members", "/reload", 0, b, "/reload", http.StatusUnauthorized},
	} {
		at := fmt.Sprint(now.Add(-test.age).Unix())
		number := fmt.Sprint(max(n, 1)) // the first two are the same request
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, test.at.http.URL+test.asked, http.NoBody)
		must.Succeed(t, err)
		req.Header.Set("Authorization", strings.Join([]string{"Feedbridge-Fleet", "a", "b", at, number, admin.SealRequest(b.Server, http.MethodPost, test.path, "a", "b", at, number)}, " "))
		resp, err := http.DefaultClient.Do(req)
		must.Succeed(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != test.want {
			t.Errorf("%s: status %d, want %d", test.name, resp.StatusCode, test.want)
		}
	}
}

// What another member runs is shown, sorted, selected and counted by the state that it has published.
func TestRowsHaveTheStatesOfTheirOwners(t *testing.T) {
	t.Parallel()
	seen := map[string]fleet.Seen{}
	a, b := newMember(t, seen, "a", "b", rightToken), newMember(t, seen, "b", "b", rightToken)
	for name, state := range map[string]bridge.State{"orders": bridge.Retrying, "bills": bridge.Halted, "carts": bridge.Idle, "stock": bridge.Paused} {
		opts := admin.FeedOptions{Name: name, Topic: "shop." + name, Bus: "main", Every: time.Second, Freshness: time.Hour}
		a.AddFeed(opts)
		var err error
		if state == bridge.Retrying || state == bridge.Halted {
			err = errors.New("broken")
		}
		enter(b.AddFeed(opts), state, checkpoint.Checkpoint{}, time.Hour, err)
	}
	rows := func() map[string]string {
		t.Helper()
		p, _ := readStatus(t, a.Server)
		states := map[string]string{"": p.Summary.Sentence}
		for _, f := range p.Feeds {
			if states[f.Feed] = f.State + " " + string(f.Attention); f.Owner != "b" || !strings.Contains(f.Explanation, "run by b") {
				t.Errorf("%s: %q, %s", f.Feed, f.Owner, f.Explanation)
			}
		}
		return states
	}
	b.publish()
	got := rows()
	if want := map[string]string{"": got[""], "orders": "retrying failing", "bills": "halted needs_you", "carts": "idle ", "stock": "paused "}; !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if !strings.HasPrefix(got[""], "4 feeds: 1 needs you, 1 fails and is tried again, ") || strings.Contains(got[""], "incomplete") {
		t.Error(got[""])
	}
	if p, _ := readStatus(t, b.Server); strings.Contains(p.Summary.Sentence, "incomplete") {
		t.Errorf("of the member that runs them: %s", p.Summary.Sentence)
	}
	_, body := get(t, a.Server, "/?state=retrying")
	if strings.Count(body, `<tr id="feed-`) != 1 || !strings.Contains(body, `<tr id="feed-orders"`) || !strings.Contains(body, "1 feeds, of 4 in all") {
		t.Error("the page does not select by state")
	}
	_, body = get(t, a.Server, "/")
	at := -1
	for _, name := range []string{"bills", "orders", "stock", "carts"} {
		before := at
		if at = strings.Index(body, `<tr id="feed-`+name); at <= before {
			t.Errorf("%s is not where its state belongs", name)
		}
	}

	// Unknown codes are ignored.
	b.publish()
	seen["b"] = fleet.Seen{Note: []byte(regexp.MustCompile(`"codes":"...."`).ReplaceAllString(string(seen["b"].Note), `"codes":"!9\u0000~"`)), At: time.Now()}
	if got := rows(); got["orders"] != "elsewhere " {
		t.Errorf("%q", got)
	}
	// The members have divided the feeds again, and b has published nothing since.
	b.publish()
	a.AddFeed(admin.FeedOptions{Name: "new", Topic: "shop.new"})
	if got := rows(); got["orders"] != "elsewhere " || got["bills"] != "elsewhere needs_you" || !strings.HasPrefix(got[""], "5 feeds: 1 needs you, ") || !strings.HasSuffix(got[""], "; incomplete while members take over feeds from each other") {
		t.Errorf("%q", got)
	}
}

// A member that is frozen takes connections and does not answer. A poll, which may take a minute, does not wait so long.
func TestForwardToAFrozenMember(t *testing.T) {
	t.Parallel()
	seen := map[string]fleet.Seen{}
	a := newMember(t, seen, "a", "b", rightToken) // with a server, whose goroutines never end in a bubble
	newMember(t, seen, "b", "b", rightToken)
	synctest.Test(t, func(t *testing.T) {
		a.DialMembers(func(context.Context, string, string) (net.Conn, error) {
			frozen, _ := net.Pipe()
			return frozen, nil
		})
		began := time.Now()
		err := a.Forward(t.Context(), "b", http.MethodPost, "/feeds/orders/poll", 65*time.Second, new(any))
		if err == nil || time.Since(began) > 5*time.Second || !strings.Contains(err.Error(), "b, another member of the fleet, does not answer within 3s; if it is gone or frozen, others take over") {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// However many feeds are ill, a note stays small, and counts them.
func TestNoteIsBounded(t *testing.T) {
	t.Parallel()
	seen := map[string]fleet.Seen{}
	m := newMember(t, seen, "a", "a", rightToken)
	for n := range 10_000 {
		f := m.AddFeed(admin.FeedOptions{Name: fmt.Sprintf("feed-%d", n), Topic: "t", Freshness: time.Hour})
		enter(f, bridge.Halted, checkpoint.Checkpoint{}, time.Hour, errors.New(strings.Repeat("\"\u2028ü", 70)))
	}
	for members, most := range map[int]int{1: 16 << 10, 3: 16 << 10, 100: 4 << 10, 1000: 2 << 10} {
		note := m.Note(members)
		var text struct{ Digest status.Digest }
		if err := json.Unmarshal(note.Text, &text); err != nil || len(note.Text) > most+200 {
			t.Errorf("%d members: %d bytes, %v", members, len(note.Text), err)
		}
		if d := text.Digest; d.NeedYou != 10_000 || len(d.Troubles)+d.MoreTroubles != 10_000 || members < 100 && len(d.Troubles) == 0 {
			t.Errorf("%d members: %d ill, %d named and %d more", members, d.NeedYou, len(d.Troubles), d.MoreTroubles)
		}
	}
}
