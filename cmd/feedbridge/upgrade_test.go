package main

import (
	"archive/tar"
	gocmp "cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/feedbridge/feedbridge/internal/admin/status"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/samplefeed"
)

// released has a directory for each release, v0.1.0 and so on, with what its program left on both buses after it
// had copied upgradeUpstream, and forms.txt, which names the fields of that. The newest section of CHANGELOG.md
// names the release that is written next:
//
//	go test ./cmd/feedbridge -run TestUpgrade -update
//
// The files of a release are never written again once it has a tag.
const released = "testdata/released"

// previousProgram is a variable with the path of an earlier build, whose state is tried in place of the stored
// ones. The step upgrade of .ci/run sets it to that of the newest tag. It has no prefix of the program's variables.
const previousProgram = "UPGRADE_FROM"

// This program goes on from what every release has left on a bus: it publishes the next entity of each feed, and
// nothing again. An earlier build does the same afterwards, or halts with a sentence.
func TestUpgrade(t *testing.T) {
	previous := os.Getenv(previousProgram)
	next := filepath.Join(released, nextRelease(t))
	for kind, start := range map[string]func(testing.TB, string) upgradeBus{"nats": startUpgradeNATS, "kafka": startUpgradeKafka} {
		if previous != "" {
			t.Run(kind+" from the previous build", func(t *testing.T) {
				u := newUpgradeRun(t, start(t, t.TempDir()))
				u.run(upgradeLength, previous)
				before := u.bus.read(t)
				u.run(upgradeLength+1, "")
				u.checkGrown(before, upgradeLength+1)
				u.run(upgradeLength+2, previous)
				u.checkGrown(before, upgradeLength+2)
				// A fleet of both builds, as during a rolling upgrade.
				t.Setenv("FEEDBRIDGE_FLEET_NAME", "shop")
				u.run(upgradeLength+3, previous, "")
				u.checkGrown(before, upgradeLength+3)
			})
			continue
		}
		t.Run(kind+" as this build leaves it", func(t *testing.T) {
			dir := t.TempDir()
			u := newUpgradeRun(t, start(t, dir))
			u.run(upgradeLength-3, "")
			t.Setenv("FEEDBRIDGE_FLEET_NAME", "shop")
			u.run(upgradeLength, "")
			forms := describeForms(t, u.bus.read(t))
			u.bus.stop()
			file := filepath.Join(next, kind+".txt")
			if *update {
				if tagged(filepath.Base(next)) {
					t.Fatalf("%s has a tag, so its files are never written again; begin the next section of CHANGELOG.md, whose release gets files of its own", filepath.Base(next))
				}
				must.Succeed(t, os.MkdirAll(next, 0o755))
				must.Succeed(t, os.WriteFile(file, []byte(forms), 0o644))
				pack(t, dir, filepath.Join(next, kind+".tar.gz"))
			}
			want, err := os.ReadFile(file)
			if errors.Is(err, os.ErrNotExist) {
				t.Skip("the next release has no files yet; release.yml requires them")
			}
			must.Succeed(t, err)
			if diff := cmp.Diff(string(want), forms); diff != "" {
				t.Errorf("what this build stores differs from %s. If earlier builds could misread it, give it a new version (docs/architecture.md); then write the files of the next release "+
					"with 'go test ./cmd/feedbridge -run TestUpgrade -update' (-stored +now):\n%s", file, diff)
			}
		})
		stored, err := filepath.Glob(filepath.Join(released, "v*", kind+".tar.gz"))
		must.Succeed(t, err)
		for _, file := range stored {
			t.Run(kind+" from "+filepath.Base(filepath.Dir(file)), func(t *testing.T) {
				dir := t.TempDir()
				unpack(t, file, dir)
				u := newUpgradeRun(t, start(t, dir))
				before := u.bus.read(t)
				t.Setenv("FEEDBRIDGE_FLEET_NAME", "shop")
				u.run(upgradeLength+1, "")
				u.checkGrown(before, upgradeLength+1)
			})
		}
	}
}

// A checkpoint or a cursor of a newer version halts its feed, names the cure, and is left as it is. Other feeds go on.
func TestNewerStateIsRefused(t *testing.T) {
	dir := t.TempDir()
	unpack(t, filepath.Join(released, "v0.1.0", "nats.tar.gz"), dir)
	bus := startUpgradeNATS(t, dir).(*upgradeNATS)
	u := newUpgradeRun(t, bus)
	newer := slices.Sorted(maps.Keys(upgradeFeeds))
	newer = slices.DeleteFunc(newer, func(name string) bool { return name == "blog" })
	for _, name := range newer {
		stream, err := bus.js.Stream(t.Context(), name)
		must.Succeed(t, err)
		last, err := stream.GetLastMsgForSubject(t.Context(), "_feedbridge."+name)
		must.Succeed(t, err)
		var cp map[string]any
		must.Succeed(t, json.Unmarshal(last.Data, &cp))
		if name == "news" {
			cp["version"] = 2
		} else {
			cursor := map[string]any{"v": 99}
			cp["cursor"], err = json.Marshal(cursor) // []byte is base64, as stored
			must.Succeed(t, err)
		}
		data, err := json.Marshal(cp)
		must.Succeed(t, err)
		_, err = bus.js.Publish(t.Context(), last.Subject, data)
		must.Succeed(t, err)
	}
	before := bus.read(t)
	u.upstream.length.Store(upgradeLength + 1)
	cmd, url := u.start("")
	defer u.kill(cmd)
	waitUntil(t, func() bool {
		refused := 0
		for _, f := range feedsOf(t, url) {
			if slices.Contains(newer, f.Feed) && f.State == "halted" && strings.Contains(f.Explanation, "run the feedbridge that wrote it, or a newer one") {
				refused++
			}
		}
		return refused == len(newer) && len(bus.read(t)["blog"]) > len(before["blog"])
	})
	for _, name := range newer {
		must.Match(t, name, before[name], bus.read(t)[name])
	}
}

// nextRelease returns the version of the newest section of the changelog.
func nextRelease(t *testing.T) string {
	text, err := os.ReadFile("../../CHANGELOG.md")
	must.Succeed(t, err)
	section := regexp.MustCompile(`(?m)^## (\S+)`).FindSubmatch(text)
	if section == nil {
		t.Fatal("CHANGELOG.md has no section")
	}
	return "v" + string(section[1])
}

func tagged(version string) bool {
	return exec.Command("git", "rev-parse", "--verify", "--quiet", "refs/tags/"+version).Run() == nil
}

// upgradeLength is the number of entities of each feed in the stored states. They have a delete of news, a dead
// letter of blog, the archives of walk but for the last one, and a member of a fleet.
const upgradeLength = 7

// upgradeFeeds are the feeds with their URLs: each format, and each way of going back to older entries.
var upgradeFeeds = map[string]string{
	"orders": "shop.example.com/feed/latest", "archived": "shop.example.com/archived", "news": "shop.example.com/news", "blog": "shop.example.com/blog",
	"posts": "shop.example.com/posts", "events": "shop.example.com/events", "walk": "walk.example.com/archived",
}

// upgradeFleet is the stream with the members of the fleet on NATS. Kafka does not store them.
const upgradeFleet = "KV_feedbridge-fleet-shop"

// upgradeEntities returns the number of messages that the topic of a feed of that length has.
func upgradeEntities(name string, length int) int {
	switch {
	case name == "news":
		return length + max(0, length-upgradeLength+1) // deletes
	case name == "blog" && length >= upgradeLength:
		return length - 1 // the other one is a dead letter
	case name == "walk" && length <= upgradeLength:
		return 0
	}
	return length
}

// upgradeUpstream has the feeds. Their URLs are part of what is stored, so the program reads them from a host name,
// and this is its proxy.
type upgradeUpstream struct {
	length atomic.Int64
	orders *samplefeed.Feed
}

func (u *upgradeUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := int(u.length.Load())
	at := func(i int) string { return time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC).Format(time.RFC3339) }
	list := func(first int, item func(i int) string) (items string) {
		for i := n - 1; i >= first; i-- {
			items += item(i)
		}
		return items
	}
	switch path := r.URL.Path; {
	case r.Host == "walk.example.com" && path == "/archive/0" && n <= upgradeLength:
		http.Error(w, "later", http.StatusServiceUnavailable)
	case path == "/archived", strings.HasPrefix(path, "/archive/"):
		r.Header.Del("If-None-Match") // the ETag of the newest document does not change while it grows
		archives{size: 3, entries: n}.ServeHTTP(w, r)
	case path == "/news": // complete: the oldest entry vanishes, with a tombstone, and the topic gets its delete
		gone := max(0, n-upgradeLength+1)
		w.Header().Set("Content-Type", "application/atom+xml")
		fmt.Fprintf(w, `<feed xmlns="http://www.w3.org/2005/Atom" xmlns:fh="http://purl.org/syndication/history/1.0" xmlns:at="http://purl.org/atompub/tombstones/1.0"><title>News</title><id>urn:news</id><fh:complete/><updated>%s</updated><at:deleted-entry ref="urn:news:%d" when="%s"/>%s</feed>`,
			at(n), gone-1, at(n), list(gone, func(i int) string {
				return fmt.Sprintf(`<entry><id>urn:news:%d</id><title>%d</title><updated>%s</updated></entry>`, i, i, at(i))
			}))
	case path == "/blog":
		w.Header().Set("Content-Type", "application/rss+xml")
		fmt.Fprintf(w, `<rss version="2.0"><channel><title>Blog</title><link>http://%s/</link><description>d</description>%s</channel></rss>`, r.Host,
			list(0, func(i int) string {
				size := 1
				if i == upgradeLength-1 {
					size = 5000 // more than limits.entity
				}
				return fmt.Sprintf(`<item><guid isPermaLink="false">blog-%d</guid><title>%d</title><description>%s</description></item>`, i, i, strings.Repeat("x", size))
			}))
	case path == "/posts":
		w.Header().Set("Content-Type", "application/feed+json")
		fmt.Fprintf(w, `{"version":"https://jsonfeed.org/version/1.1","title":"Posts","items":[%s]}`, strings.TrimSuffix(list(0, func(i int) string {
			return fmt.Sprintf(`{"id":"post-%d","content_text":"%d","date_published":%q},`, i, i, at(i))
		}), ","))
	case path == "/events":
		var events []string
		for i := range n {
			event := fmt.Sprintf(`{"specversion":"1.0","type":"t","source":"/s","id":"event-%d","time":%q,"data":{"n":%d}}`, i, at(i), i)
			if events = append(events, event); r.URL.Query().Get("lastEventId") == fmt.Sprintf("event-%d", i) {
				events = nil
			}
		}
		w.Header().Set("Content-Type", "application/cloudevents-batch+json")
		fmt.Fprintf(w, `[%s]`, strings.Join(events, ","))
	default:
		u.orders.SetLen(n)
		u.orders.ServeHTTP(w, r)
	}
}

// upgradeRun is a bus, and the upstream of the feeds.
type upgradeRun struct {
	t        *testing.T
	bus      upgradeBus
	upstream *upgradeUpstream
	config   string
}

func newUpgradeRun(t *testing.T, bus upgradeBus) *upgradeRun {
	u := &upgradeRun{t: t, bus: bus, upstream: &upgradeUpstream{orders: samplefeed.New(samplefeed.Options{PageSize: 3, Entity: samplefeed.Sized(50)})}}
	proxy := httptest.NewServer(u.upstream)
	t.Cleanup(proxy.Close)
	t.Setenv("http_proxy", proxy.URL)
	var feeds strings.Builder
	for _, name := range slices.Sorted(maps.Keys(upgradeFeeds)) {
		fmt.Fprintf(&feeds, "  %s: {url: 'http://%s', every: 200ms, limits: {rate: 1000, entity: 4000}}\n", name, upgradeFeeds[name])
	}
	u.config = filepath.Join(t.TempDir(), "feedbridge.yaml")
	must.Succeed(t, os.WriteFile(u.config, []byte("feed_defaults: {oversize: dead-letter}\nbuses:\n  main: {"+bus.config()+"}\nfeeds:\n"+feeds.String()), 0o600))
	return u
}

// start starts a build with a path; "" is that of this source.
func (u *upgradeRun) start(build string) (cmd *exec.Cmd, status string) {
	return startBuild(u.t, build, map[string]string{"CONFIG": u.config})
}

func (u *upgradeRun) kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// run runs builds side by side until each feed of that length is in its topic, and one of them runs it.
func (u *upgradeRun) run(length int, builds ...string) {
	u.t.Helper()
	u.upstream.length.Store(int64(length))
	urls := map[string]bool{}
	for _, build := range builds {
		cmd, url := u.start(build)
		defer u.kill(cmd)
		urls[url] = true
	}
	var feeds []status.Feed
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); waitFor(u.t, 100*time.Millisecond) {
		feeds = feeds[:0]
		for url := range urls {
			feeds = append(feeds, feedsOf(u.t, url)...)
		}
		run, done := 0, 0
		for _, f := range feeds {
			if f.State == "elsewhere" || f.Owner != "" {
				continue
			}
			run++
			want := uint64(upgradeEntities(f.Feed, length))
			if f.Entities == want && (f.State == "idle" || f.State == "retrying" && want == 0) {
				done++
			}
		}
		if len(feeds) == len(upgradeFeeds)*len(builds) && run == len(upgradeFeeds) && done == run {
			return
		}
	}
	for _, f := range feeds {
		u.t.Logf("%s: %s, %d entities: %s", f.Feed, f.State, f.Entities, f.Explanation)
	}
	u.t.Fatalf("the topics have not all entities of feeds with %d", length)
}

// checkGrown checks that each topic has what it had before, and then the entities up to that length, each once.
func (u *upgradeRun) checkGrown(before map[string][]storedMessage, length int) {
	u.t.Helper()
	after := u.bus.read(u.t)
	for name := range upgradeFeeds {
		was, now := entitiesOf(before[name]), entitiesOf(after[name])
		if want := upgradeEntities(name, length); len(now) != want {
			u.t.Errorf("%s: %d entities after %d, want %d", name, len(now), len(was), want)
			continue
		}
		must.Match(u.t, name, was, append([]storedMessage(nil), now[:len(was)]...))
		must.Match(u.t, "dead letters of "+name, deadLettersOf(before[name]), deadLettersOf(after[name]))
		ids := map[string]bool{}
		for _, m := range now {
			key := m.Header["Content-ID"] + " " + m.Header["Feedbridge-Operation"]
			if ids[key] {
				u.t.Errorf("%s: %s is there twice", name, key)
			}
			ids[key] = true
		}
	}
}

// feedsOf returns the feeds in a status; none while the program does not answer.
func feedsOf(t *testing.T, url string) []status.Feed {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must.Succeed(t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var s struct{ Feeds []status.Feed }
	must.Succeed(t, json.NewDecoder(resp.Body).Decode(&s))
	return s.Feeds
}

// storedMessage is a message of a bus. A checkpoint has a topic other than its feed's name.
type storedMessage struct {
	Topic  string
	Header map[string]string
	Value  string
}

// entitiesOf returns the messages that are no checkpoints.
func entitiesOf(all []storedMessage) (entities []storedMessage) {
	for _, m := range all {
		if _, ok := upgradeFeeds[m.Topic]; ok {
			entities = append(entities, m)
		}
	}
	return entities
}

// deadLettersOf returns the dead letters among messages.
func deadLettersOf(all []storedMessage) []storedMessage {
	return slices.DeleteFunc(slices.Clone(all), func(m storedMessage) bool { return !strings.HasSuffix(m.Topic, ".dead") })
}

// describeForms returns the names of headers, of the fields of checkpoints and cursors, and the versions of marks: what
// does not depend on times and places, nor on how many commits were made.
func describeForms(t *testing.T, stored map[string][]storedMessage) string {
	t.Helper()
	lines := map[string]bool{}
	for name, messages := range stored {
		for i, m := range messages {
			kind := "checkpoint"
			if name == upgradeFleet {
				kind = "member"
			} else if _, ok := upgradeFeeds[m.Topic]; ok {
				kind = "entity"
			} else if strings.HasSuffix(m.Topic, ".dead") {
				kind = "dead letter"
			}
			for header := range m.Header {
				lines[kind+" header "+header] = true
			}
			if mark := m.Header["Feedbridge-Mark"]; mark != "" {
				version, _, _ := strings.Cut(mark, ";")
				lines["mark "+version] = true
			}
			if kind == "member" {
				var member map[string]any
				must.Succeed(t, json.Unmarshal([]byte(m.Value), &member))
				lines["member: "+strings.Join(slices.Sorted(maps.Keys(member)), " ")] = true
			}
			if kind != "checkpoint" || slices.ContainsFunc(messages[i+1:], func(later storedMessage) bool { return later.Topic == m.Topic }) {
				continue // not the newest checkpoint
			}
			var cp, cursor map[string]any
			var form struct{ Cursor []byte }
			must.Succeed(t, errors.Join(json.Unmarshal([]byte(m.Value), &cp), json.Unmarshal([]byte(m.Value), &form), json.Unmarshal(form.Cursor, &cursor)))
			lines[fmt.Sprintf("checkpoint %v: %s", cp["version"], strings.Join(slices.Sorted(maps.Keys(cp)), " "))] = true
			lines[fmt.Sprintf("cursor %v of %s: %s", cursor["v"], name, strings.Join(slices.Sorted(maps.Keys(cursor)), " "))] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(lines)), "\n") + "\n"
}

// upgradeBus is a bus in a process of its own, with its data in a directory.
type upgradeBus interface {
	config() string
	// read returns the messages of each feed, its checkpoints among them.
	read(t testing.TB) map[string][]storedMessage
	stop()
}

type upgradeNATS struct {
	url string
	cmd *exec.Cmd
	js  jetstream.JetStream
}

func startUpgradeNATS(t testing.TB, dir string) upgradeBus {
	url, cmd := startServer(t, "nats", dir, "-1")
	nc, err := nats.Connect(url)
	must.Succeed(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must.Succeed(t, err)
	return &upgradeNATS{url, cmd, js}
}

func (n *upgradeNATS) config() string { return fmt.Sprintf("nats: {url: %q}", n.url) }

func (n *upgradeNATS) stop() { _ = n.cmd.Process.Kill(); _ = n.cmd.Wait() }

func (n *upgradeNATS) read(t testing.TB) map[string][]storedMessage {
	all := map[string][]storedMessage{}
	for _, name := range append(slices.Collect(maps.Keys(upgradeFeeds)), upgradeFleet) {
		stream, err := n.js.Stream(t.Context(), name)
		if name == upgradeFleet && errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		must.Succeed(t, err)
		for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
			m, err := stream.GetMsg(t.Context(), seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // an older checkpoint
			}
			must.Succeed(t, err)
			header := map[string]string{}
			for key, values := range m.Header {
				header[key] = strings.Join(values, ",")
			}
			all[name] = append(all[name], storedMessage{m.Subject, header, string(m.Data)})
		}
	}
	return all
}

type upgradeKafka struct {
	addr string
	cmd  *exec.Cmd
}

func startUpgradeKafka(t testing.TB, dir string) upgradeBus {
	addr, cmd := startServer(t, "kafka", dir, freeAddress(t))
	return &upgradeKafka{addr, cmd}
}

func (k *upgradeKafka) config() string { return fmt.Sprintf("kafka: {brokers: [%q]}", k.addr) }

func (k *upgradeKafka) stop() { _ = k.cmd.Process.Kill(); _ = k.cmd.Wait() }

func (k *upgradeKafka) read(t testing.TB) map[string][]storedMessage {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.addr))
	must.Succeed(t, err)
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx)
	must.Succeed(t, err)
	left, from := 0, map[string]map[int32]kgo.Offset{}
	ends.Each(func(end kadm.ListedOffset) {
		if end.Offset > 0 {
			left++
			if from[end.Topic] == nil {
				from[end.Topic] = map[int32]kgo.Offset{}
			}
			from[end.Topic][end.Partition] = kgo.NewOffset().AtStart()
		}
	})
	consumer, err := kgo.NewClient(kgo.SeedBrokers(k.addr), kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	must.Succeed(t, err)
	defer consumer.Close()
	all := map[string][]storedMessage{}
	for left > 0 {
		fetched := consumer.PollFetches(ctx)
		must.Succeed(t, gocmp.Or(fetched.Err(), ctx.Err()))
		fetched.EachRecord(func(r *kgo.Record) {
			if end, _ := ends.Lookup(r.Topic, r.Partition); r.Offset == end.Offset-1 {
				left--
			}
			if r.Attrs.IsControl() {
				return
			}
			name := strings.TrimSuffix(r.Topic, ".dead")
			if _, ok := upgradeFeeds[name]; !ok {
				_, name, _ = strings.Cut(string(r.Key), "/")
			}
			header := map[string]string{}
			for _, h := range r.Headers {
				header[h.Key] = string(h.Value)
			}
			all[name] = append(all[name], storedMessage{r.Topic, header, string(r.Value)})
		})
	}
	return all
}

// pack writes the files of a directory to an archive.
func pack(t *testing.T, dir, file string) {
	t.Helper()
	f, err := os.Create(file)
	must.Succeed(t, err)
	zipped := gzip.NewWriter(f)
	w := tar.NewWriter(zipped)
	must.Succeed(t, w.AddFS(os.DirFS(dir)))
	must.Succeed(t, errors.Join(w.Close(), zipped.Close(), f.Close()))
}

// unpack is the inverse of pack.
func unpack(t *testing.T, file, dir string) {
	t.Helper()
	f, err := os.Open(file)
	must.Succeed(t, err)
	defer func() { _ = f.Close() }() // it was only read
	zipped, err := gzip.NewReader(f)
	must.Succeed(t, err)
	root, err := os.OpenRoot(dir)
	must.Succeed(t, err)
	defer func() { _ = root.Close() }()
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must.Succeed(t, err)
		if h.Typeflag == tar.TypeDir {
			must.Succeed(t, root.MkdirAll(strings.TrimSuffix(h.Name, "/"), 0o755))
			continue
		}
		must.Succeed(t, root.MkdirAll(filepath.Dir(h.Name), 0o755))
		data, err := io.ReadAll(r)
		must.Succeed(t, err)
		must.Succeed(t, root.WriteFile(h.Name, data, 0o644))
	}
}
