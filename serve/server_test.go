package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/connlimit"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// start runs a server until the test ends.
func start(t *testing.T, opts ServerOptions, feeds ...*Feed) string {
	t.Helper()
	url, stop := listen(t, NewServer(opts, feeds...).Serve)
	t.Cleanup(stop)
	return url
}

// serveOn serves on a listener until stop is called.
func serveOn(t *testing.T, l net.Listener, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, l) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	must.Succeed(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must.Succeed(t, err)
	return resp.StatusCode, string(b)
}

func TestServer(t *testing.T) {
	t.Parallel()
	topic := numberedTopic(7)
	away := newTopic()
	away.away = true
	gone := newTopic()
	gone.gone = true
	feeds := []*Feed{
		serveTopic(t, topic, withSnapshots()).Feed,
		serveTopic(t, away, func(c *Config) { c.Name = "away" }).Feed,
		serveTopic(t, gone, func(c *Config) { c.Name = "gone" }).Feed,
		serveTopic(t, newTopic(), func(c *Config) { c.Name = "empty" }).Feed,
		serveTopic(t, topic, protected(Auth{Bearer: "x"}), func(c *Config) { c.Name = "secret" }).Feed,
		serveTopic(t, topic, func(c *Config) { c.Name, c.Format = "news", Atom }).Feed,
	}
	url := start(t, ServerOptions{}, feeds...)
	for path, want := range map[string]int{
		"/feeds/orders/latest": 200, "/feeds/orders/pages/e0-3-0": 200, "/feeds/away/latest": 503, "/feeds/gone/latest": 404, "/feeds/empty/latest": 204,
		"/feeds/secret/latest": 401, "/feeds/secret/x": 401, "/feeds/news/latest": 200, "/feeds/other/latest": 404, "/feeds/": 404, "/feeds/orders": 404,
		"/x": 404, "/": 200,
	} {
		if status, body := get(t, url+path); status != want || status >= 400 && len(body) < 20 {
			t.Errorf("%s: got %d %q, want %d", path, status, body, want)
		}
	}
	for { // until the snapshot is there
		_, page := get(t, url+"/")
		if !strings.Contains(page, "snapshots/latest") {
			continue
		}
		for _, want := range []string{
			`<tr><td><a href="/feeds/orders/latest">orders</a><td>datareplication<td>2026-03-01 12:00:07 UTC, `,
			`<a href="/feeds/orders/latest">newest page</a> <a href="/feeds/orders/snapshots/latest">snapshot</a> of 2026-03-01 12:00:07 UTC`,
			`away</a><td>datareplication<td>the bus does not answer<td>`, `gone</a><td>datareplication<td>its topic does not exist<td>`,
			`empty</a><td>datareplication<td>it has no messages<td>`,
			"<p>There are others, for those who have their credentials.",
			`news</a><td>atom<td>`,
		} {
			if !strings.Contains(page, want) {
				t.Errorf("there is no %s in %s", want, page)
			}
		}
		if strings.Contains(page, "secret") {
			t.Errorf("others see the name of a feed with credentials: %s", page)
		}
		break
	}
}

// Buses that do not answer do not keep people from seeing the others.
func TestListWaitsForAllAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var feeds []*Feed
		slow := make(chan struct{})
		for i := range 6 {
			topic := numberedTopic(3)
			if i < 5 {
				topic.slow = slow
			}
			feeds = append(feeds, serveTopic(t, topic, func(c *Config) { c.Name = fmt.Sprintf("f%d", i) }).Feed)
		}
		s := NewServer(ServerOptions{}, feeds...)
		begun, w := time.Now(), httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		for i := range 6 {
			want := fmt.Sprintf(`f%d</a><td>datareplication<td>the bus does not answer<td>`, i)
			if got := strings.Contains(w.Body.String(), want); got != (i < 5) {
				t.Errorf("%s is %t in %s", want, got, w.Body)
			}
		}
		close(slow)
	})
}

// Those who have the credentials of a feed see it too, and links lead to where
// readers find the feeds.
func TestListForClientsWithCredentials(t *testing.T) {
	t.Parallel()
	topic := numberedTopic(4)
	withSecret := func(c *Config) { c.Name, c.PublicURL = "secret", "https://shop.example/s/" }
	s := NewServer(ServerOptions{}, serveTopic(t, topic, protected(Auth{Bearer: "x"}), withSecret).Feed)
	list := func(token string) string {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Header.Set("Authorization", "Bearer "+token)
		s.ServeHTTP(w, r)
		return w.Body.String()
	}
	if page := list("y"); strings.Contains(page, "secret") || strings.Contains(page, "shop") || strings.Contains(page, "none") || !strings.Contains(page, "There are others") {
		t.Errorf("who does not know sees %s", page)
	}
	page := list("x")
	for _, want := range []string{
		`<a href="https://shop.example/s/latest">secret</a>`, `<a href="https://shop.example/s/latest">newest page</a>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %s in %s", want, page)
		}
	}
	if strings.Contains(page, "others") {
		t.Errorf("who knows sees %s", page)
	}
}

// No answer lets a browser execute or load what is in it: an entry of Atom may have a script of XHTML.
func TestBrowsersExecuteNothing(t *testing.T) {
	t.Parallel()
	topic := numberedTopic(4)
	named := func(name string, format Format) *Feed {
		return serveTopic(t, topic, as(format), func(c *Config) { c.Name = name }).Feed
	}
	s := NewServer(ServerOptions{}, named("pages", DataReplication), named("atom", Atom), named("rss", RSS))
	for _, path := range []string{"/", "/no", "/feeds/pages/latest", "/feeds/pages/no", "/feeds/atom/latest", "/feeds/rss/pages/e0-3-0"} {
		for _, accept := range []string{"", browser} {
			r, w := httptest.NewRequest("GET", path, nil), httptest.NewRecorder()
			r.Header.Set("Accept", accept)
			s.ServeHTTP(w, r)
			h := w.Result().Header
			if h.Get("Content-Security-Policy") != "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" || h.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: got %v", path, h)
			}
		}
	}
}

// Who does not wait for the list does not decide what others see.
func TestClientOfTheListDisconnects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := numberedTopic(3)
		topic.slow = make(chan struct{})
		s := NewServer(ServerOptions{}, serveTopic(t, topic).Feed)
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		}()
		synctest.Wait()
		leave()
		<-left
		close(topic.slow)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if !strings.Contains(w.Body.String(), "<td>2026-") {
			t.Errorf("the next one sees %s", w.Body)
		}
	})
}

// A client that reads its answer slowly gets all of it. A client that reads nothing is
// disconnected.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pause  time.Duration // before each piece
		memory *PageCache
		ok     bool
	}{
		"slow": {connlimit.WriteTimeout / 2, nil, true}, "stuck": {connlimit.WriteTimeout * 2, nil, false},
		"slow, with a page that is not held": {connlimit.WriteTimeout / 2, tiny(), true}, "stuck, with a page that is not held": {connlimit.WriteTimeout * 2, tiny(), false},
	} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			topic := newTopic()
			for i := range 10 {
				topic.add(messageOf(fmt.Sprint(i), feed.Put, noon, strings.Repeat("x", 50_000)))
			}
			l := newPipes()
			server := NewServer(ServerOptions{}, serveTopic(t, topic, sized(10), func(c *Config) { c.Memory = test.memory }).Feed)
			stop := serveOn(t, l, server)
			conn := l.dial()
			fmt.Fprint(conn, "GET /feeds/orders/latest HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReaderSize(slowly{conn, test.pause}, connlimit.Chunk), nil)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if (err == nil) != test.ok {
				t.Errorf("got %v", err)
			}
			conn.Close()
			stop()
		})
	}
}

type slowly struct {
	net.Conn
	pause time.Duration
}

func (s slowly) Read(b []byte) (int, error) {
	time.Sleep(s.pause)
	n, err := io.ReadAtLeast(s.Conn, b, 1)
	return n, err
}

// pipes is a listener within the process.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// Pages that slow clients are being sent are not held beyond what memory has.
func TestMemoryIsBounded(t *testing.T) {
	const clients, size = 60, 200_000
	topic := newTopic()
	for i := range clients {
		topic.add(messageOf(fmt.Sprint(i), feed.Put, noon, strings.Repeat("x", size)))
	}
	memory := NewPageCache(16 * (size + 20_000))
	s := serveTopic(t, topic, sized(1), func(c *Config) { c.Memory = memory })
	var conns []net.Conn
	l := newPipes()
	stop := serveOn(t, l, NewServer(ServerOptions{}, s.Feed))
	read := make([]*bufio.Reader, clients)
	for i := range clients {
		conn := l.dial()
		conns = append(conns, conn)
		fmt.Fprintf(conn, "GET /feeds/orders/pages/e0-1-%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", i)
		read[i] = bufio.NewReaderSize(conn, 16)
		if i < 16+streams { // the others wait for their turn
			if _, err := read[i].Peek(1); err != nil {
				t.Fatal(err)
			}
		}
	}
	runtime.Gosched()
	memory.mu.Lock()
	used, held := memory.used, len(memory.pages)
	memory.mu.Unlock()
	if used > memory.budget || held == 0 {
		t.Errorf("%d bytes are used by %d pages, of %d", used, held, memory.budget)
	}
	// They all get their pages in the end.
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			resp, err := http.ReadResponse(read[i], nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if n, err := io.Copy(io.Discard, resp.Body); err != nil || n < size || resp.StatusCode != 200 {
				t.Errorf("got %d bytes of page %d, %d, %v", n, i, resp.StatusCode, err)
			}
		})
	}
	wg.Wait()
	for _, conn := range conns {
		conn.Close()
	}
	stop()
	memory.mu.Lock()
	defer memory.mu.Unlock()
	sum := int64(0)
	for _, at := range memory.pages {
		p := at.Value.(*page)
		if sum += p.cachedBytes; p.refs != 0 {
			t.Errorf("page %v has %d refs", p.id, p.refs)
		}
	}
	if sum != memory.used {
		t.Errorf("%d bytes are said to be used, and are %d", memory.used, sum)
	}
}

// A page may be dropped between being made and being sent.
func TestMemoryCountsWhatIsDroppedAndHeld(t *testing.T) {
	t.Parallel()
	m := NewPageCache(10_000)
	a, b := &page{pageKey: pageKey{feed: "a"}, body: make([]byte, 5000)}, &page{pageKey: pageKey{feed: "b"}, body: make([]byte, 6000)}
	want := func(n int64) {
		t.Helper()
		if m.used != n {
			t.Errorf("%d bytes are used, want %d", m.used, n)
		}
	}
	m.storePage(a)
	want(5000 + pageOverhead)
	m.storePage(b)
	want(6000 + pageOverhead)
	m.retainPage(a)
	want(11_000 + 2*pageOverhead)
	if got := m.acquirePage(b.pageKey); got != b || m.acquirePage(a.pageKey) != nil {
		t.Errorf("got %v", got)
	}
	if m.storeGzip(a, make([]byte, 10)); a.packed != nil {
		t.Error("there was room")
	}
	m.releasePage(a)
	want(6000 + pageOverhead)
	m.storePage(a) // b is being sent
	want(6000 + pageOverhead)
	if a.body != nil {
		t.Error("there was room")
	}
	m.releasePage(b)
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := numberedTopic(1)
		l := newPipes()
		stop := serveOn(t, l, NewServer(ServerOptions{Connections: 2}, serveTopic(t, topic).Feed))
		var conns []net.Conn
		for range 3 { // the third one is accepted, too, and waits for its slot
			conns = append(conns, l.dial())
		}
		answered := make(chan int, 3)
		for i, conn := range conns {
			go func() {
				fmt.Fprint(conn, "GET /feeds/orders/latest HTTP/1.1\r\nHost: x\r\n\r\n")
				if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
					answered <- i
				}
			}()
		}
		synctest.Wait() // the time stands still, so nobody is idle for too long
		if n := len(answered); n != 2 {
			t.Fatalf("%d were answered, want 2", n)
		}
		one, two := <-answered, <-answered
		conns[one].Close()
		synctest.Wait()
		if n := len(answered); n != 1 {
			t.Fatalf("%d more were answered, want 1", n)
		}
		if three := <-answered; three+one+two != 3 {
			t.Errorf("%d was answered twice", three)
		}
		for _, conn := range conns {
			conn.Close()
		}
		stop()
	})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	topic := numberedTopic(1)
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	defer certified.Close()
	client := certified.Client()
	url, stop := listen(t, NewServer(ServerOptions{TLS: certified.TLS}, serveTopic(t, topic).Feed).Serve)
	defer stop()
	defer client.CloseIdleConnections()
	resp, err := client.Get(strings.Replace(url, "http:", "https:", 1) + "/feeds/orders/latest")
	must.Succeed(t, err)
	resp.Body.Close()
	if l := (got{header: resp.Header}).links(t); !strings.HasPrefix(l["self"], "https://127.0.0.1:") || resp.StatusCode != 200 {
		t.Errorf("got %d, %v", resp.StatusCode, l)
	}
}

// A page that is larger than a sixteenth of the memory is not held, though there is
// room for it.
func TestLargePageIsNotCached(t *testing.T) {
	t.Parallel()
	memory := NewPageCache(160_000)
	s := serveTopic(t, sampleTopic(200), sized(40), func(c *Config) { c.Memory = memory })
	for size, held := range map[uint64]bool{5: true, 40: false} {
		p, err := s.builder.currentPage(t.Context(), pageKey{feed: s.cfg, id: pageID{"e0", size, 1}})
		must.Succeed(t, err)
		memory.releasePage(p)
		if got := p.body != nil; got != held {
			t.Errorf("a page of %d bytes is held: %v", p.length, got)
		}
	}
}

// A page is built in a buffer of the size of the page before it. The buffer is not kept if
// the page is smaller.
func TestPageTakesLittleMoreThanItHas(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	for i := range 60 {
		topic.add(messageOf(fmt.Sprint(i), feed.Put, time.Unix(1e9, 0), strings.Repeat("x", 10+100_000*(i/10%2))))
	}
	s := serveTopic(t, topic, sized(10))
	for k := range uint64(6) {
		p, err := s.builder.currentPage(t.Context(), pageKey{feed: s.cfg, id: pageID{"e0", 10, k}})
		must.Succeed(t, err)
		s.builder.memory.releasePage(p)
		if most := len(p.body)*9/8 + 1<<10; cap(p.body) > most || len(p.body) < 1000 {
			t.Errorf("page %d of %d bytes takes %d, want at most %d", k, len(p.body), cap(p.body), most)
		}
	}
}

// People and monitors ask for the list often, and a page may be large.
func TestViewReadsLittle(t *testing.T) {
	t.Parallel()
	topic := numberedTopic(500)
	topic.skip(300)
	s := serveTopic(t, topic, sized(1000))
	v, err := s.View(t.Context())
	if err != nil || !v.Newest.Equal(topic.records[499].Time) {
		t.Errorf("got %v, %v", v, err)
	}
	if topic.read > 20 {
		t.Errorf("%d messages were read", topic.read)
	}
}
