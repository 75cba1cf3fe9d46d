import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.calcite.config.Lex;
import org.apache.calcite.sql.SqlNode;
import org.apache.calcite.sql.parser.SqlParser;
import org.apache.flink.sql.parser.impl.FlinkSqlParserImpl;
import org.apache.flink.sql.parser.validate.FlinkSqlConformance;

/** One statement a line in Base64; the answer is OK, class, text or ERROR, class, message. */
public class FlinkParser {
  public static void main(String[] arguments) throws Exception {
    SqlParser.Config config =
        SqlParser.config()
            .withParserFactory(FlinkSqlParserImpl.FACTORY)
            .withConformance(FlinkSqlConformance.DEFAULT)
            .withLex(Lex.JAVA)
            .withIdentifierMaxLength(256);
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String sql = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
      String[] answer;
      try {
        SqlNode node = SqlParser.create(sql, config).parseStmt();
        answer = new String[] {"OK", node.getClass().getSimpleName(), written(node)};
      } catch (Throwable error) {
        answer = new String[] {"ERROR", error.getClass().getSimpleName(), "" + error.getMessage()};
      }
      byte[] text = answer[2].getBytes(StandardCharsets.UTF_8);
      out.println(answer[0] + " " + answer[1] + " " + Base64.getEncoder().encodeToString(text));
    }
  }

  private static String written(SqlNode node) {
    try {
      return node.toSqlString(c -> c.withAlwaysUseParentheses(true).withIndentation(0)).getSql();
    } catch (Throwable error) {
      // Some of Flink's own nodes cannot write themselves.
      return "";
    }
  }
}
