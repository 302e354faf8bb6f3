//! Text of a given length.

use super::random::WorkloadRandom;

/// Common English words, most of which are one token in most vocabularies.
const WORDS: &str = "the of and to in is that it was for on are with as his they be at one have this from by hot but some \
    what there we can out other were all your when up use word how said an each she which do their time if will way about \
    many then them would write like so these her long make thing see him two has look more day could go come did my sound no \
    most number know over than call first people may down side been now find any new work part take get place made live where \
    after back little only round man year came show every good give our under name very through just form much great think \
    say help low line before turn cause same mean differ move right boy old too does tell sentence set three want air well \
    also play small end put home read hand port large spell add even land here must big high such follow act why ask men \
    change went light kind off need house picture try us again animal point mother world near build self earth father head \
    stand own page should country found answer school grow study still learn plant cover food sun four thought let keep eye \
    never last door between city tree cross since hard start might story saw far sea draw left late run while press close \
    night real life few stop open seem together next white children begin got walk example ease paper often always music \
    those both mark book letter until mile river car feet care second group carry took rain eat room friend began idea fish \
    mountain north once base hear horse cut sure watch color face wood main";

/// Makes texts of common words in random order.
pub(super) struct Writer {
    words: Vec<&'static str>,
}

impl Writer {
    pub(super) fn new() -> Self {
        Self { words: WORDS.split_whitespace().collect() }
    }

    /// Returns a text of `count` words, thus about as many tokens.
    pub(super) fn text(&self, random: &mut WorkloadRandom, count: usize) -> String {
        let words: Vec<_> = (0..count).map(|_| self.words[random.below(self.words.len())]).collect();
        words.join(" ")
    }
}
