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
// have; after that the greatest fingerprint does.
//
// A member can run a feed of a list only if the agreed version has it with the same URL. So no topic gets the
// entities of two URLs by turns, each feed of the agreed version has a member that can run it, and a feed that
// both versions have does not move. Members that cannot read a list, or hold a change of it, do not keep the
// others from using a newer version unless these are fewer.
type List struct {
	// URLs has the URL of each feed, by topic.
	URLs map[string]string
	// Failed is set if the last attempt to read the list has failed.
	Failed bool
}

// listVersion is the version of a list, as a member publishes it.
type listVersion struct {
	// Topics is the fingerprint of the version, and Hashes its feeds, which are published as those of value are.
	Topics string `json:"topics"`
	Hashes []byte `json:"hashes,omitempty"`
	Failed bool   `json:"failed,omitempty"`
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

// agree returns the fingerprint of the version of each list that the members agree on.
func agree(members map[string]value) map[string]string {
	type votes struct{ read, all int }
	counts := map[string]map[string]votes{} // by list and fingerprint
	for _, v := range members {
		for list, version := range v.Lists {
			if counts[list] == nil {
				counts[list] = map[string]votes{}
			}
			n := counts[list][version.Topics]
			if n.all++; !version.Failed {
				n.read++
			}
			counts[list][version.Topics] = n
		}
	}
	agreed := map[string]string{}
	for list, versions := range counts {
		agreed[list] = slices.MaxFunc(slices.Collect(maps.Keys(versions)), func(a, b string) int {
			return cmp.Or(cmp.Compare(versions[a].read, versions[b].read), cmp.Compare(versions[a].all, versions[b].all), cmp.Compare(a, b))
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
