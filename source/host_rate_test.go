package source_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/source"
)

// requests records when a host was asked, by minute or second.
type requests struct {
	mu    sync.Mutex
	times []time.Time
}

func (r *requests) add() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times = append(r.times, time.Now())
}

// most returns the largest number of requests within any d.
func (r *requests) most(d time.Duration) (most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, from := range r.times {
		n, _ := slices.BinarySearchFunc(r.times, from.Add(d), time.Time.Compare)
		most = max(most, n-i)
	}
	return most
}

// pollAll lets clients poll their URLs until a time.
func pollAll(t *testing.T, clients map[*source.Client]string, pause time.Duration, until time.Time) {
	t.Helper()
	var polls sync.WaitGroup
	for c, url := range clients {
		polls.Go(func() {
			for time.Now().Before(until) {
				_, _, _ = get(t, c, url)
				time.Sleep(pause)
			}
		})
	}
	polls.Wait()
}

func atRate(rate float64) func(*source.Config) {
	return func(c *source.Config) { c.Limits.Rate = rate }
}

// The members of a fleet keep to the rate of a host together, while feeds move among them as well.
func TestMembersOfAFleetShareTheRateOfAHost(t *testing.T) {
	t.Parallel()
	var asked requests
	bubble(t, func(http.ResponseWriter, *http.Request) { asked.add() }, func(t *testing.T, hosts *source.Hosts) {
		members := []*source.Hosts{hosts, {Dial: hosts.Dial}, {Dial: hosts.Dial}}
		assign := func(member int, owners string) {
			var feeds []source.HostFeed
			for i, owner := range owners {
				url := fmt.Sprintf("http://shop.example.com/%d", i)
				feeds = append(feeds, source.HostFeed{URL: url, Rate: 2, Own: int(owner-'0') == member})
			}
			members[member].SetFeeds(feeds, 3)
		}
		clients := map[*source.Client]string{}
		for member, n := range []int{6, 3, 1} {
			assign(member, "0000001112")
			for i := range 2 * n {
				url := fmt.Sprintf("http://shop.example.com/%d", i)
				clients[newClientWith(t, source.Options{Hosts: members[member]}, url, atRate(2))] = url
			}
		}
		begun := time.Now()
		for i, owners := range []string{"0011112222", "0000000111"} {
			for member := range 3 { // half a second apart, those that get more first
				at := time.Duration(i+1)*time.Minute + time.Duration(2-member)*500*time.Millisecond
				time.AfterFunc(at, func() { assign(member, owners) })
			}
		}
		pollAll(t, clients, time.Second, begun.Add(3*time.Minute))
		if all, most := len(asked.times), asked.most(10*time.Second); all < 300 || most > 22 {
			t.Errorf("%d requests in 3 minutes, and %d in 10 s; want nearly 2 a second, and not more", all, most)
		}
	})
}

// A host that redirects lead to has a share of its own for each member, also if others name it.
func TestShareOfAHostThatNoFeedNames(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		host string
		want float64
	}{
		"own feeds":              {"own.example", 1.0 / 3},
		"no feed":                {"other.example", 1.0 / 4},
		"feeds of other members": {"theirs.example", 1.0 / 2},
		"other limits.rate":      {"rate.example", 1.0 / 4},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			hosts := new(source.Hosts)
			hosts.SetFeeds([]source.HostFeed{
				{URL: "https://own.example/1", Rate: 2, Own: true},
				{URL: "https://OWN.example:443/2", Rate: 2},
				{URL: "https://own.example/3", Rate: 2},
				{URL: "https://theirs.example/1", Rate: 2},
				{URL: "https://theirs.example/2", Rate: 2},
				{URL: "https://rate.example", Rate: 3},
			}, 4)
			if got := source.ShareOf(hosts, test.host+":443", 2); got != test.want {
				t.Errorf("the share is %v, want %v", got, test.want)
			}
			if got := source.ShareOf(new(source.Hosts), test.host+":443", 2); got != 1 {
				t.Errorf("without a fleet the share is %v", got)
			}
		})
	}
}

// Some hosts, such as Reddit since June 2026, allow one request a minute, and announce nothing.
func TestAHostThatRefusesRequestsIsAskedOnceAMinute(t *testing.T) {
	t.Parallel()
	for name, members := range map[string]int{"one copy": 1, "a fleet": 2} {
		parallel.Run(t, name, func(t *testing.T) {
			var asked, refused requests
			var last atomic.Int64
			bubble(t, func(w http.ResponseWriter, _ *http.Request) {
				asked.add()
				if time.Since(time.Unix(0, last.Load())) < 59*time.Second {
					refused.add()
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				last.Store(time.Now().UnixNano())
			}, func(t *testing.T, hosts *source.Hosts) {
				all, clients := []*source.Hosts{hosts, {Dial: hosts.Dial}}[:members], map[*source.Client]string{}
				var feeds []source.HostFeed
				for i := range 10 {
					feeds = append(feeds, source.HostFeed{URL: feedURL, Rate: source.Defaults().Limits.Rate, Own: i%members == 0})
				}
				for i := range feeds {
					all[i%members].SetFeeds(feeds, members)
					clients[newClientWith(t, source.Options{Hosts: all[i%members]}, feedURL, atRate(source.Defaults().Limits.Rate))] = feedURL
				}
				begun := time.Now()
				pollAll(t, clients, time.Second, begun.Add(45*time.Minute))
				asked.times = slices.DeleteFunc(asked.times, func(at time.Time) bool { return at.Sub(begun) < 2*time.Minute })
				if n, most := len(asked.times), asked.most(10*time.Minute); n < 42 || most > 10+members {
					t.Errorf("%d requests in 43 minutes or so, and %d in ten of them, want one a minute", n, most)
				}
				for c := range clients {
					if got := c.Spacing(); got != 10*time.Minute {
						t.Errorf("the spacing is %v, want a minute for each of the feeds", got)
					}
				}
				slow := hosts.SlowHosts()
				if len(slow) != 1 || slow[0].Host != "shop.example.com:80" || slow[0].Rate != 1.0/60 || slow[0].Share != 1/float64(members) || slow[0].Status != 429 || slow[0].Since.Sub(begun) > time.Minute || slow[0].Eases.Sub(begun) < time.Hour {
					t.Errorf("slow hosts: %+v", slow)
				}
			})
		})
	}
}

// The rate grows again, and settles below what the host allows.
func TestASlowHostIsAskedMoreAgain(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	var allowed rateWindow
	bubble(t, func(w http.ResponseWriter, _ *http.Request) {
		if !allowed.allow() {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}, func(t *testing.T, hosts *source.Hosts) {
		allowed.most = 3 // a minute
		c := newClientWith(t, source.Options{Hosts: hosts, Log: slog.New(slog.NewTextHandler(&log, nil))}, feedURL, atRate(source.Defaults().Limits.Rate))
		clients, begun := map[*source.Client]string{c: feedURL}, time.Now()
		pollAll(t, clients, 10*time.Second, begun.Add(7*24*time.Hour))
		if refused := allowed.refused; refused < 3 || refused > 20 {
			t.Errorf("%d requests of a week were refused", refused)
		}
		if slow := hosts.SlowHosts(); len(slow) != 1 || slow[0].Rate*60 < 2 || slow[0].Rate*60 > 5 {
			t.Errorf("after a week: %+v, want nearly 3 a minute", slow)
		}
		allowed.most = 1e6
		pollAll(t, clients, 2*time.Minute, time.Now().Add(16*24*time.Hour))
		if slow := hosts.SlowHosts(); len(slow) > 0 || c.Spacing() != 0 {
			t.Errorf("a host that refuses no requests any more: %+v", slow)
		}
		for _, want := range []string{
			`level=WARN msg="a host has refused requests, so its feeds make fewer; set limits.rate to what the provider allows" host=shop.example.com:80 status=429 requests_per_minute=1 for=1h0m0s`,
			`level=INFO msg="a host has refused no requests for long, so its feeds make as many as before" host=shop.example.com:80`,
		} {
			if strings.Count(log.String(), want) != 1 {
				t.Errorf("the log has not %s: %.3000s", want, log.String())
			}
		}
	})
}

// rateWindow allows so many requests in a minute of the clock.
type rateWindow struct {
	most, used, refused int
	minute              time.Time
}

func (w *rateWindow) allow() bool {
	if minute := time.Now().Truncate(time.Minute); minute != w.minute {
		w.minute, w.used = minute, 0
	}
	if w.used++; w.used > w.most {
		w.refused++
		return false
	}
	return true
}

func TestRateOfASlowHost(t *testing.T) {
	t.Parallel()
	unset := source.Defaults().Limits.Rate
	for name, test := range map[string]struct {
		rate   float64
		status int
		want   float64 // 0 is not slow
	}{
		"refused":    {unset, 429, 1.0 / 60},
		"configured": {100, 429, 0},
		"no refusal": {unset, 503, 0},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(test.status) })
			hosts := new(source.Hosts)
			_, _, err := get(t, newClientWith(t, source.Options{Hosts: hosts}, url, atRate(test.rate)), url)
			if err == nil {
				t.Fatal("no error")
			}
			got := 0.0
			for _, slow := range hosts.SlowHosts() {
				got = slow.Rate
			}
			if got != test.want {
				t.Errorf("%v requests a second, want %v", got, test.want)
			}
		})
	}
}

// A page that is refused whatever the rate is must not slow down the other feeds of the host for ever.
func TestOneRefusedPageSlowsAHostDownOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}, func(t *testing.T, hosts *source.Hosts) {
		clients := map[*source.Client]string{}
		for _, path := range []string{"/refused", "/feed"} {
			url := "http://shop.example.com" + path
			clients[newClientWith(t, source.Options{Hosts: hosts}, url, atRate(source.Defaults().Limits.Rate))] = url
		}
		pollAll(t, clients, 10*time.Second, time.Now().Add(24*time.Hour))
		if slow := hosts.SlowHosts(); len(slow) > 0 {
			t.Errorf("after a day: %+v", slow)
		}
	})
}

// Redirects may lead to another host each time.
func TestHostsThatAreNoLongerUsedAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hosts := new(source.Hosts)
		for n := range 10_000 {
			source.ShareOf(hosts, fmt.Sprintf("h%d.example:443", n), 2)
			time.Sleep(time.Minute)
		}
		if n := source.KnownHosts(hosts); n > 600 {
			t.Errorf("%d hosts are known, of 120 in two hours", n)
		}
	})
}

// A share that grows counts when the other members have reduced theirs, and one that shrinks counts at once.
func TestAShareGrowsLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hosts source.Hosts
		want := func(own bool, share float64) {
			t.Helper()
			hosts.SetFeeds([]source.HostFeed{{URL: "https://shop.example/1", Rate: 2, Own: true}, {URL: "https://shop.example/2", Rate: 2, Own: own}}, 2)
			if got := source.ShareOf(&hosts, "shop.example:443", 2); got != share {
				t.Errorf("the share is %v, want %v", got, share)
			}
		}
		want(false, 0.5)
		want(true, 0.5)
		time.Sleep(2 * time.Second)
		if got := source.ShareOf(&hosts, "shop.example:443", 2); got != 1 {
			t.Errorf("the share is %v two seconds later", got)
		}
		want(false, 0.5)
	})
}
