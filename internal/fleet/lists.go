package fleet

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// List is a list of feeds as this copy has read it. One that was never read is no List.
//
// Members may have read different versions of a list. A version is the topics of its feeds, each with its
// URL. The members agree on one version, which all compute from what all publish: the one that most members have.
// Members whose last attempt to read the list has failed decide only between versions that equally many others
// have. After that the version with more feeds is agreed on, so that a member which has restarted stops no feeds, and
// then that with the greater fingerprint.
//
// A version that a member holds, since it has lost most of the feeds, is not agreed on, unless a member that has it
// publishes that a person has confirmed it. So a member that restarts, and takes the list as it is, stops no feeds, and
// neither does one whose hold ends before those of others. The members that hold the confirmed version use it
// then. If all that hold a version have died, or read another one, it counts like any other.
//
// A member can run a feed of a list only if the agreed version has it with the same URL. So no topic gets the
// entities of two URLs by turns, each feed of the agreed version has a member that can run it, and a feed that
// both versions have does not move. Members that cannot read a list do not keep the others from using a newer
// version unless these are fewer.
type List struct {
	// URLs has the URL of each feed, by topic.
	URLs map[string]string
	// Failed is set if the last attempt to read the list has failed.
	Failed bool
	// Entries identifies the entries of this version, and Held those of a version that this copy holds. Unlike URLs
	// they do not depend on other lists.
	Entries, Held string
	// Confirmed is set if a person has confirmed this version.
	Confirmed bool
}

// listVersion is the version of a list, as a member publishes it.
type listVersion struct {
	// Topics is the fingerprint of the version, Feeds the number of its feeds, and Hashes these, which are published as
	// those of value are.
	Topics string `json:"topics"`
	Feeds  int    `json:"feeds,omitempty"`
	Hashes []byte `json:"hashes,omitempty"`
	Failed bool   `json:"failed,omitempty"`
	// The others are those of List.
	Entries   string `json:"entries,omitempty"`
	Held      string `json:"held,omitempty"`
	Confirmed bool   `json:"confirmed,omitempty"`
}

// urlBits is the size of the hash of a feed's URL, which follows that of its topic in a version of a list.
const urlBits = 16

func listedHash(topic, url string) uint64 {
	return hashOf(topic)<<urlBits | xxhash.Sum64String(url)>>(64-urlBits)
}

// version returns the feeds of the list, as hashes of topics and URLs.
func (l List) version() *Topics {
	hashes := make([]uint64, 0, len(l.URLs))
	for topic, url := range l.URLs {
		hashes = append(hashes, listedHash(topic, url))
	}
	slices.Sort(hashes)
	return newTopics(hashes)
}

// Fingerprint is the same for the same version of the list.
func (l List) Fingerprint() string { return l.version().fingerprint }

// entriesOf identifies a version of a list by its entries.
type entriesOf struct{ list, entries string }

// holds returns the members that hold a version which none has confirmed, and the versions that are confirmed.
func holds(members map[string]value) (held map[entriesOf][]string, confirmed map[entriesOf]bool) {
	held, confirmed = map[entriesOf][]string{}, map[entriesOf]bool{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		for list, version := range members[name].Lists {
			if version.Confirmed {
				confirmed[entriesOf{list, version.Entries}] = true
			}
			if version.Held != "" {
				of := entriesOf{list, version.Held}
				held[of] = append(held[of], name)
			}
		}
	}
	maps.DeleteFunc(held, func(of entriesOf, _ []string) bool { return confirmed[of] })
	return held, confirmed
}

// agree returns the fingerprint of the version of each list that the members agree on.
func agree(members map[string]value, held map[entriesOf][]string) map[string]string {
	type votes struct{ held, read, all, feeds int }
	counts := map[string]map[string]votes{} // by list and fingerprint
	for _, v := range members {
		for list, version := range v.Lists {
			if counts[list] == nil {
				counts[list] = map[string]votes{}
			}
			n := counts[list][version.Topics]
			n.feeds = max(n.feeds, version.Feeds)
			if held[entriesOf{list, version.Entries}] != nil {
				n.held = 1
			}
			if n.all++; !version.Failed {
				n.read++
			}
			counts[list][version.Topics] = n
		}
	}
	agreed := map[string]string{}
	for list, versions := range counts {
		agreed[list] = slices.MaxFunc(slices.Collect(maps.Keys(versions)), func(a, b string) int {
			v, w := versions[a], versions[b]
			return cmp.Or(cmp.Compare(w.held, v.held), cmp.Compare(v.read, w.read), cmp.Compare(v.all, w.all), cmp.Compare(v.feeds, w.feeds), cmp.Compare(a, b))
		})
	}
	return agreed
}

// able returns the topics that a member can run: those of its configuration, and of the feeds of its lists that
// the agreed versions have too.
func (r *roster) able(v value, agreed map[string]string) *Topics {
	var hashes []uint64
	if own := r.sets[v.Topics]; own != nil {
		hashes = slices.Clone(own.hashes)
	}
	for list, version := range v.Lists {
		has, chosen := r.sets[version.Topics], r.sets[agreed[list]]
		if has == nil || chosen == nil {
			continue
		}
		for _, hash := range has.hashes {
			if _, ok := slices.BinarySearch(chosen.hashes, hash); ok {
				hashes = append(hashes, hash>>urlBits)
			}
		}
	}
	slices.Sort(hashes)
	return newTopics(slices.Compact(hashes))
}

// Version returns the fingerprint of the version of a list that the members have agreed on, empty if there is none.
func (a Assignment) Version(list string) string {
	if version := a.agreed[list]; version != nil {
		return version.fingerprint
	}
	return ""
}

// Agrees reports whether the members have agreed on a version of a list that has a feed with this topic and URL.
func (a Assignment) Agrees(list, topic, url string) bool {
	version := a.agreed[list]
	if version == nil {
		return false
	}
	_, ok := slices.BinarySearch(version.hashes, listedHash(topic, url))
	return ok
}

// Confirms reports whether a member has confirmed the version of a list with these entries.
func (a Assignment) Confirms(list, entries string) bool { return a.confirmed[entriesOf{list, entries}] }

// HeldBy returns the members that hold the version of a list that this copy has, and that none has confirmed.
func (a Assignment) HeldBy(list string) []string { return a.held[entriesOf{list, a.entries[list]}] }
