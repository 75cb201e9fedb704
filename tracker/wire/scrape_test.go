package wire

import "fmt"

// parseScrapeAnswer reads the answer to a scrape over HTTP, which braid's peers never request. The
// error of a refusal is a *Failure.
func parseScrapeAnswer(b []byte) ([]Counts, error) {
	var out []Counts
	var f *Failure
	d := decoder{b: b}
	err := d.dict(func(key string) (err error) {
		switch key {
		case "failure reason":
			f = &Failure{}
			f.Reason, err = d.message()
			return err
		case "files":
			return d.dict(func(hash string) error {
				var c Counts
				if len(hash) != len(c.InfoHash) || len(out) == MaxScrape {
					return d.skip()
				}
				copy(c.InfoHash[:], hash)
				err := d.counts(&c)
				out = append(out, c)
				return err
			})
		}
		return d.skip()
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("malformed scrape answer: %w", err)
	case f != nil:
		return nil, f
	}
	return out, nil
}

func (d *decoder) counts(c *Counts) error {
	fields := map[string]*int64{
		"complete": &c.Complete, "incomplete": &c.Incomplete, "downloaded": &c.Downloaded, "downloaders": &c.Downloaders,
	}
	return d.dict(func(key string) (err error) {
		if to := fields[key]; to != nil {
			*to, err = d.integer()
			return err
		}
		return d.skip()
	})
}
