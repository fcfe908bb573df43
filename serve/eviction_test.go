package serve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/connlimit"
	"github.com/feedbridge/feedbridge/internal/limit"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
)

// crowd is a server within a bubble, and what its clients have got.
type crowd struct {
	*pipes
	t *testing.T
}

// gather serves a feed of one page, larger than 1 MB, to clients until the test's end.
func gather(t *testing.T, connections int, edit ...func(*Config)) crowd {
	topic := newTopic()
	for i := range 20 {
		topic.add(messageOf(fmt.Sprint(i), feed.Put, noon, strings.Repeat("x", 60_000)))
	}
	c := crowd{newPipes(), t}
	server := NewServer(ServerOptions{Connections: connections}, serveTopic(t, topic, append(edit, sized(20))...).Feed)
	t.Cleanup(serveOn(t, c, server))
	return c
}

// outcome holds the answer that a client got. The status is 0 if it was disconnected before
// the end.
type outcome struct {
	status     int
	retryAfter string
}

// ask asks for the page, and takes a piece of it after every pause.
func (c crowd) ask(pause time.Duration) <-chan outcome {
	answered := make(chan outcome, 1)
	go func() {
		conn := c.dial()
		defer conn.Close()
		answered <- c.read(conn, pause)
	}()
	synctest.Wait()
	return answered
}

func (c crowd) read(conn net.Conn, pause time.Duration) outcome {
	fmt.Fprint(conn, "GET /feeds/orders/latest HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReaderSize(slowly{conn, pause}, connlimit.Chunk), nil)
	if err != nil {
		return outcome{}
	}
	defer resp.Body.Close()
	switch body, err := io.ReadAll(resp.Body); {
	case err != nil || resp.StatusCode == 200 && len(body) < 1_200_000:
		return outcome{}
	case resp.StatusCode == 503 && string(body) != "Too many clients are being served. Try again in a moment.\n":
		c.t.Errorf("got %q", body)
	}
	return outcome{resp.StatusCode, resp.Header.Get("Retry-After")}
}

// When all slots are taken, the slowest client is disconnected. A client that is fast
// enough stays, and so does a slow one while no other client waits.
func TestTheSlowestMakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 3)
		steady, slow := c.ask(connlimit.ChunkTime*9/10), c.ask(20*time.Second)
		time.Sleep(time.Second)
		slower := c.ask(29 * time.Second) // kept us waiting for less time yet
		time.Sleep(time.Second)
		begun := time.Now()
		next := c.ask(0)
		if got := (<-next).status; got != 200 {
			t.Errorf("the next one got %d", got)
		}
		if took := time.Since(begun); took > patience {
			t.Errorf("it waited for %v", took)
		}
		if got := (<-slow).status; got != 0 {
			t.Errorf("the slowest got %d", got)
		}
		for name, answered := range map[string]<-chan outcome{"the steady one": steady, "the other slow one": slower} {
			if got := (<-answered).status; got != 200 {
				t.Errorf("%s got %d", name, got)
			}
		}
	})
}

// An idle client is disconnected too, also if it has never sent a request.
func TestTheIdleMakeRoom(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{"idle": "GET /feeds/orders/x HTTP/1.1\r\nHost: x\r\n\r\n", "silent": "", "unfinished": "GET /"} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			c := gather(t, 1)
			conn := c.dial()
			defer conn.Close()
			fmt.Fprint(conn, request)
			said := bufio.NewReader(conn)
			if name == "idle" {
				resp, err := http.ReadResponse(said, nil)
				if err != nil || resp.StatusCode != 404 {
					t.Fatal(resp, err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			begun := time.Now()
			if got := (<-c.ask(0)).status; got != 200 || time.Since(begun) > patience {
				t.Errorf("got %d after %v", got, time.Since(begun))
			}
			if _, err := said.ReadByte(); err != io.EOF {
				t.Errorf("who was there before got %v", err)
			}
		})
	}
}

// A page that is not cached is sent to few clients at a time. The slow ones are
// disconnected; if there are none, the next client gets 503.
func TestSlowStreamsAreDisconnected(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pause time.Duration
		want  int
	}{"slow ones": {20 * time.Second, 200}, "steady ones": {connlimit.ChunkTime / 4, 503}} {
		parallel.RunVirtual(t, name, func(t *testing.T) {
			ended := make(chan int, 100)
			c := gather(t, 100, func(c *Config) {
				c.Memory, c.Observe = tiny(), func(status int, _ time.Duration) { ended <- status }
			})
			var before []<-chan outcome
			for range streams {
				before = append(before, c.ask(test.pause))
			}
			begun := time.Now()
			got := <-c.ask(0)
			if took := time.Since(begun); got.status != test.want || took > streamWait {
				t.Errorf("got %d after %v, want %d", got.status, took, test.want)
			}
			if (got.retryAfter != "") != (test.want == 503) {
				t.Errorf("Retry-After is %q", got.retryAfter)
			}
			// A client that was cut off holds no slot, also when it reads on.
			if synctest.Wait(); len(ended) != map[int]int{200: 2, 503: 1}[test.want] {
				t.Errorf("%d requests have come to an end", len(ended))
			}
			cut := 0
			for _, answered := range before {
				if (<-answered).status != 200 {
					cut++
				}
			}
			if want := map[int]int{200: 1, 503: 0}[test.want]; cut != want {
				t.Errorf("%d were cut off, want %d", cut, want)
			}
		})
	}
}

// wholeWrites remembers the largest write.
type wholeWrites struct {
	*httptest.ResponseRecorder
	largest int
}

func (w *wholeWrites) Write(b []byte) (int, error) {
	w.largest = max(w.largest, len(b))
	return w.ResponseRecorder.Write(b)
}

// A cached page is not copied for each client.
func TestCachedPagesAreSentUncopied(t *testing.T) {
	t.Parallel()
	topic := newTopic()
	topic.add(messageOf("m", feed.Put, noon, strings.Repeat("x", 100_000)))
	s := serveTopic(t, topic)
	w := &wholeWrites{ResponseRecorder: httptest.NewRecorder()}
	s.ServeHTTP(w, httptest.NewRequest("GET", "/feeds/orders/latest", nil))
	if w.largest != w.Body.Len() || w.largest < 100_000 {
		t.Errorf("of %d bytes at most %d were written at once", w.Body.Len(), w.largest)
	}
}

// However many pages are to be compressed, few are at a time.
func TestCompressionIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := newTopic()
		topic.add(messageOf("m", feed.Put, noon, strings.Repeat("x", 100_000)))
		s := serveTopic(t, topic)
		s.get(t, "/latest").want(t, 200)
		var taken []*limit.Slot
		for slot := s.builder.memory.builds.TryAcquire(); slot != nil; slot = s.builder.memory.builds.TryAcquire() {
			taken = append(taken, slot)
		}
		answered := make(chan got, 1)
		go func() { answered <- s.get(t, "/latest", "Accept-Encoding", "gzip") }()
		synctest.Wait()
		select {
		case g := <-answered:
			t.Errorf("got %v", g)
		default:
		}
		for _, slot := range taken {
			slot.Release()
		}
		if g := <-answered; g.header.Get("Content-Encoding") != "gzip" {
			t.Errorf("got %v", g.header)
		}
	})
}
